"""The words of Sentiment140, read by hand and by the importer."""

from __future__ import annotations

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhist import FedhistError, SparsePopulation
from tests.support.api import InvalidFile, read_sentiment140
from tests.support.refusals import refused

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
Write = Callable[..., Path]
PIECES = [
    "word", "It's", "@Ana", "@ben_k", "x@y", "&amp;", "&quot;", "&amp;lt;", "http://a.b/c", "www.q", "É", ",", '"', "'",
    "#tag", "a_b", " ", "  ", "@", "&#39;", "::", "\t", "@@x", "1,000",
]  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def users_of(population: SparsePopulation) -> list[dict[str, int]]:
    """What each user has, by name, in the order of users."""
    rows, labels = population.histograms, population.labels
    assert labels is not None
    return [
        {str(labels[rows.items[k]]): int(rows.counts[k]) for k in range(rows.offsets[i], rows.offsets[i + 1])}
        for i in range(rows.users)
    ]


def words_by_hand(text: str) -> tuple[list[str], str | None]:
    """The words of a tweet and whom it addresses, as the documentation says it."""
    text = re.sub(r"(?:https?://|www\.)\S+", " ", html.unescape(text).lower())
    mentions = re.findall(r"(?<![a-z0-9_])@([a-z0-9_]+)", text)
    text = re.sub(r"(?<![a-z0-9_])@[a-z0-9_]+", " ", text)
    return re.findall(r"[a-z0-9']+", text), mentions[0] if mentions else None


def tweets_by_hand(content: bytes, by: str) -> list[dict[str, int]]:
    users: dict[str, Counter[str]] = {}
    for row in csv.reader(io.StringIO(content.decode("latin-1"))):
        words, addressee = words_by_hand(row[5])
        user = row[4] if by == "author" else addressee
        if user is not None:
            users.setdefault(user, Counter()).update(words)
    return [dict(words) for words in users.values()]


def as_bag(users: list[dict[str, int]]) -> Counter[frozenset[tuple[str, int]]]:
    return Counter(frozenset(one.items()) for one in users)


class TestSentiment140:
    def test_one_tweet_word_by_word(self) -> None:
        found = read_sentiment140(VECTORS / "tweets.csv")
        assert found.labels is not None and found.labels[0] == "the"
        totals = sum(map(Counter, users_of(found)), Counter())
        assert [totals[str(name)] for name in found.labels] == sorted(totals.values(), reverse=True)
        ana, ben, *others = users_of(found)
        assert ana == {
            "i'm": 1, "at": 1, "the": 1, "park": 1, "it's": 1, "great": 1, "museum": 1, "with": 1, "and": 1, "3": 1,
            "2": 1, "museums": 1, "in": 1, "1": 1, "day": 1,
        }  # fmt: skip
        assert ben == {"the": 2, "caf": 1, "sun": 1, "don't": 1, "wake": 1, "me": 1}
        # A tweet of mentions alone has no words; its author stays.
        assert sorted(map(len, others))[0] == 0
        (dora,) = filter(None, others)
        assert dora["dora"] == 1 and dora["example"] == 1

    @given(
        texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=1, max_size=6),
        by=st.sampled_from(["author", "addressee"]),
        quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    )
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_tweets_are_read_as_by_hand(
        self, write: Write, texts: list[str], by: str, quoting: int
    ) -> None:
        out = io.StringIO()
        # A last tweet that has a word and an addressee, since a file without any is refused.
        for number, text in enumerate([*texts, "@zoe end"]):
            row = ["0", str(number), "Mon", "NO_QUERY", f"user{number % 3}", text]
            csv.writer(out, quoting=quoting, lineterminator="\n").writerow(row)  # type: ignore[call-overload]
        path = write(out.getvalue().encode("latin-1"))
        found = read_sentiment140(path, by=by)  # type: ignore[arg-type]
        assert as_bag(users_of(found)) == as_bag(tweets_by_hand(path.read_bytes(), by))


TWEET = '"0","1","Mon","NO_QUERY","ana","a word"\n'


class TestLines:
    @pytest.mark.parametrize(
        "line",
        [
            "ana,park", '"1","1","Mon","NO_QUERY","ana","x"', '"0","x","Mon","NO_QUERY","ana","x"',
            '"0","1","Mon","NO_QUERY","","x"', '"0","1","Mon","NO_QUERY","ana"', "0,1,Mon,NO_QUERY,ana,x,y",
            "0,1,Mon,NO_QUERY,ana",
        ],
    )  # fmt: skip
    def test_one_of_another_form_is_left_out_and_two_in_a_thousand_are_refused_by_number(
        self, write: Write, line: str
    ) -> None:
        good = TWEET * 998
        found = read_sentiment140(write(f"{TWEET}{line}\n\r\n{good}"))
        assert (found.users, int(found.totals().sum())) == (1, 2 * 999)
        with refused(InvalidFile, "malformed-lines", "1,000") as caught:
            read_sentiment140(write(f"{line}\n{TWEET}{line}\n{good[: -len(TWEET)]}"))
        assert "ana" not in str(caught.value)

    def test_its_own_quotes_and_separators_are_the_text_s(self, write: Write) -> None:
        found = read_sentiment140(write('"0","1","Mon","NO_QUERY","ana","he said "no","","never"\n'))
        assert users_of(found) == [{"he": 1, "said": 1, "no": 1, "never": 1}]

    def test_a_file_that_is_missing_a_folder_or_without_words(self, write: Write, tmp_path: Path) -> None:
        for path in (tmp_path / "none.csv", tmp_path, write(""), write(TWEET.replace("a word", "@x"))):
            with pytest.raises(InvalidFile):
                read_sentiment140(path)

    @given(data=st.binary(max_size=300))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_bytes_are_read_or_refused_in_one_sentence(self, write: Write, data: bytes) -> None:
        try:
            read_sentiment140(write(data))
        except FedhistError as error:
            assert "\n" not in str(error)
