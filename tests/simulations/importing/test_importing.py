"""Published formats, read by hand and by the importers."""

from __future__ import annotations

import csv
import gzip
import html
import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhist import FedhistError, InvalidInput, SparsePopulation
from tests.support.api import FORMAT_NAMES, FORMATS, InvalidFile, InvalidPopulation, import_population

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
        found = import_population(VECTORS / "tweets.csv")
        assert (found.format.name, found.tally.lines, found.tally.malformed) == ("sentiment140", 6, 0)
        ana, ben, dora, cleo = users_of(found.population)
        assert ana == {
            "i'm": 1, "at": 1, "the": 1, "park": 1, "it's": 1, "great": 1, "museum": 1, "with": 1, "and": 1, "3": 1,
            "2": 1, "museums": 1, "in": 1, "1": 1, "day": 1,
        }  # fmt: skip
        assert ben == {"the": 2, "caf": 1, "sun": 1, "don't": 1, "wake": 1, "me": 1}
        assert dora["dora"] == 1 and dora["example"] == 1
        # A tweet of mentions alone has no words; its author stays, at the end.
        assert cleo == {}

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
        found = import_population(path, by=by)  # type: ignore[arg-type]
        assert found.tally.malformed == 0
        assert as_bag(users_of(found.population)) == as_bag(tweets_by_hand(path.read_bytes(), by))


CHECKINS = [{"22847": 2, "420315": 1}, {"ee8b88dea22411": 1, "0" * 32: 1}]
RATINGS = [{"31": 1, "1029": 1}, {"31": 1}, {"50": 1}]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "format_name", "users"),
    [
        ("checkins.txt", "snap", CHECKINS),
        ("ratings.csv", "movielens", RATINGS),
        ("ratings.dat", "movielens", RATINGS),
        ("u.data", "movielens", RATINGS),
        # With quotes, counts and other columns.
        ("visits.csv", "records", [{"007": 3, "park": 2, 'say "hi"': 1}, {"zoo, north": 1}]),
        ("visits.tsv", "records", [{"park": 2}, {"park": 1, "musée": 1}]),
        ("visits.jsonl", "records", [{"park": 2, "musée": 1}, {"park": 1}]),
    ],
)
def test_items_by_user(
    write: Write, name: str, format_name: str, users: list[dict[str, int]], packed: bool
) -> None:
    content = (VECTORS / name).read_bytes()
    found = import_population(write(gzip.compress(content), "any.gz") if packed else VECTORS / name)
    assert (found.format.name, found.tally.malformed) == (format_name, 0)
    assert users_of(found.population) == users


class TestRecords:
    def test_malformed_json_lines_are_found_among_many(self, write: Write) -> None:
        lines = [f'{{"user": {n % 50}, "item": "i{n % 7}"}}' for n in range(3_000)]
        wrong = {
            17: "{", 900: "[1, 2]", 901: '{"user": 1}', 2000: "nothing", 2001: '{"user": 1, "item": "a", "count": -1}',
            2500: '{"user": 1, "item": "a", "count": 1.5}', 2501: '{"user": 1, "item": "a", "count": "2"}',
        }  # fmt: skip
        for number, text in wrong.items():
            lines[number - 1] = text
        found = import_population(write("\n".join(lines), "x.jsonl"), max_malformed=0.01)
        assert (found.tally.malformed, found.tally.named) == (len(wrong), list(wrong))
        assert int(found.population.totals().sum()) == 3_000 - len(wrong)

    def test_parquet_rows_with_gaps_or_bad_counts_are_malformed(self, tmp_path: Path) -> None:
        table = pl.DataFrame(
            {"user": ["a", None, "b", "b", "c"], "item": ["x", "x", "", "y", "y"], "count": [2, 1, 1, 3, -1]}
        )
        table.write_parquet(tmp_path / "t.parquet")
        found = import_population(tmp_path / "t.parquet", max_malformed=0.6)
        assert (found.tally.unit, found.tally.named) == ("row", [2, 3, 5])
        assert users_of(found.population) == [{"x": 2}, {"y": 3}]


# A good file of each format, and lines that do not follow it.
MALFORMED = {
    "checkins.txt": (
        "x\t2010-10-19T23:55:27Z\t30.2\t-97.7\t22847", "0\t2010-10-19 23:55\t30.2\t-97.7\t22847",
        "0\t2010-10-19T23:55:27Z\tnorth\t-97.7\t22847", "0\t2010-10-19T23:55:27Z\t30.2\t-97.7\t",
        "0\t2010-10-19T23:55:27Z\t30.2\t-97.7", "0\t2010-10-19T23:55:27Z\t30.2\t-97.7\t1\t2", "0\t\t\t\t",
    ),
    "ratings.csv": ("1,2,3.0", "1,2,9,5", "a,2,3,5", "1,,3,5", "1,2,x,5", "1,2,3,5,6"),
    "counted.csv": (
        "ana", "ana,", ",park,1", "ana,park,-1", "ana,park,1.5", "ana,park,nan", 'ana,"park,1', "a,b,1,2",
    ),
}  # fmt: skip


class TestLines:
    @pytest.mark.parametrize(
        ("name", "line"), [(name, line) for name in MALFORMED for line in MALFORMED[name]]
    )
    def test_lines_of_another_form_are_malformed(self, write: Write, name: str, line: str) -> None:
        counted = "user,item,count\nana,park,2\nben,zoo,1"
        good = (VECTORS / name).read_text().splitlines() if name != "counted.csv" else counted.splitlines()
        alone = import_population(write("\n".join(good), name))
        # Last but one, so that something good follows.
        found = import_population(write("\n".join([*good[:-1], line, good[-1]]), name), max_malformed=0.5)
        assert (found.tally.malformed, found.tally.named) == (1, [len(good)])
        assert found.tally.lines == alone.tally.lines + 1
        assert users_of(found.population) == users_of(alone.population)

    def test_small_chunks_blank_lines_and_carriage_returns_change_nothing(self, write: Write) -> None:
        lines = "".join(f"u{n % 40},i{n % 9}\r\n" for n in range(500))
        path = write(f"\ufeffuser,item\r\n\r\n{lines}\r\nu1,i1")
        whole, pieces = (import_population(path, chunk_bytes=size) for size in (1 << 26, 37))
        assert users_of(whole.population) == users_of(pieces.population)
        assert whole.tally == pieces.tally
        assert whole.tally.lines == 501 and whole.tally.malformed == 0

    def test_line_numbers_are_the_file_s_in_every_chunk(self, write: Write) -> None:
        lines = ["user,item", *(f"u{n},i" for n in range(400))]
        for number in (5, 77, 300):
            lines[number - 1] = "broken"
        found = import_population(write("\n".join(lines)), chunk_bytes=100, max_malformed=0.1)
        assert found.tally.named == [5, 77, 300]

    def test_only_the_first_ten_are_named(self, write: Write) -> None:
        found = import_population(write("user,item\n" + "u,i\nbroken\n" * 40), max_malformed=0.5)
        assert (found.tally.malformed, len(found.tally.named)) == (40, 10)
        assert "40 of 80 lines are malformed (line 3, 5," in found.tally.in_words()

    def test_a_line_in_another_encoding_is_malformed_and_the_others_are_read(self, write: Write) -> None:
        content = "user,item\nana,musée\n".encode() + "ben,musée\n".encode("latin-1") + b"cleo,zoo\n"
        found = import_population(write(content), max_malformed=0.5)
        assert found.tally.named == [3]
        assert found.population.users == 2
        latin = import_population(write(content), encoding="latin-1")
        assert latin.population.users == 3

    @given(data=st.binary(max_size=300))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_bytes_are_read_or_refused_in_one_sentence(self, write: Write, data: bytes) -> None:
        beginnings = {"a.csv": b"user,item\n", "a.txt": b"", "a.gz": b"\x1f\x8b", "a.parquet": b"PAR1"}
        for name, beginning in beginnings.items():
            try:
                import_population(write(beginning + data, name), max_malformed=1.0)
            except FedhistError as error:
                assert "\n" not in str(error)


class TestRefusals:
    @pytest.mark.parametrize("name", FORMAT_NAMES)
    def test_a_file_of_another_format_is_refused_with_the_shape_of_this_one(self, name: str) -> None:
        other = VECTORS / ("tweets.csv" if name != "sentiment140" else "checkins.txt")
        with pytest.raises(InvalidFile) as caught:
            import_population(other, format_name=name)
        assert FORMATS[name].shape in str(caught.value)
        assert tuple(FORMATS) == FORMAT_NAMES

    @pytest.mark.parametrize(
        ("content", "name", "words"),
        [
            (b"", "a.csv", "is empty"),
            (b"PK\x03\x04junk", "a.zip", "unzip it first"),
            (b"\x00\x01\x02junk", "a.csv", "is not text"),
            (gzip.compress(b"user,item\n" * 9999, mtime=0)[:-20], "a.csv.gz", "cut short or damaged"),
            (gzip.compress(b"", mtime=0), "a.gz", "is empty"),
            (b"\x1f\x8bjunkjunk", "a.gz", "cut short or damaged"),
            (b"PAR1junk", "a.parquet", "is damaged"),
            (b"user;item\na;b\n", "a.csv", "of no known format"),
            (b"\xef\xbb\xbf", "a.csv", "of no known format"),
            (b"who,what\na,b\n", "a.csv", "the columns user, item and optionally count"),
            (b"user,item\n\n\n", "a.csv", "has no records"),
        ],
    )
    def test_what_is_wrong_is_said(self, write: Write, content: bytes, name: str, words: str) -> None:
        with pytest.raises(InvalidFile, match=re.escape(words)):
            import_population(write(content, name))

    def test_a_missing_file_and_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidFile, match="there is no file"):
            import_population(tmp_path / "none.csv")
        with pytest.raises(InvalidFile, match="is not a file"):
            import_population(tmp_path)

    def test_messages_hold_nothing_of_the_data(self, write: Write) -> None:
        with pytest.raises(InvalidFile) as caught:
            import_population(write("user,item\nsecretuser\nsecretother,\n"))
        assert "secret" not in str(caught.value)
        # A file without a header begins with data.
        for name in ("auto", "records"):
            with pytest.raises(InvalidFile) as caught:
                import_population(write("secretuser,secretitem\nb,c\n"), format_name=name)
            assert "secret" not in str(caught.value)

    def test_by_is_for_tweets_alone(self) -> None:
        with pytest.raises(InvalidInput, match="--by with sentiment140 alone"):
            import_population(VECTORS / "checkins.txt", by="author")

    def test_a_user_with_too_much_is_refused(self, write: Write) -> None:
        with pytest.raises(InvalidPopulation, match="add up to too much"):
            import_population(write("user,item,count\na,b,2000000000\na,c,2000000000\n"))
