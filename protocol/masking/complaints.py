"""Which devices to leave out when some say that the boxes of others do not open.

A complaint has two sides and the server can't look into the box, so it can't tell a sender of garbage from a liar. It
leaves devices out until no complaint is left between two that stay: each time the device with the most complaints, as
accused or as accuser. A sender of garbage is the centre of a star of complaints, and so is a liar that accuses
everybody: such a device is left out and no other. Ties go to the device with more accusers, then to the smallest id.

*How many honest devices can b bad ones get left out?* Every complaint has a bad device on one side, so an honest device
has at most b. When the most complaints of any device are D, at most b D are left, and to leave an honest device out
then settles D of them. So the numbers r_j of honest devices that are left out with j complaints obey
r_1 + 2 r_2 + ... + D r_D <= b D for every D up to b. Their sum is largest when all of these are equalities, r_j = b/j:
at most b (1 + 1/2 + ... + 1/b). One bad device takes one honest device out of the sum at most, five take eleven.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush

from fedhist.protocol.masking.incidents import LeftOut


def devices_to_leave_out(complaints: Mapping[int, Collection[int]]) -> dict[int, LeftOut]:
    """The devices to leave out, with the reason; `complaints` has the accused by accuser.

    There is at most one complaint between two devices: if both accuse each other, it counts once.
    """
    accusers: dict[int, set[int]] = {}
    accused: dict[int, set[int]] = {}
    for accuser, others in complaints.items():
        for other in others:
            accused.setdefault(accuser, set()).add(other)
            accusers.setdefault(other, set()).add(accuser)
    nobody: set[int] = set()

    def place(device: int) -> tuple[int, int, int]:
        against, by = accusers.get(device, nobody), accused.get(device, nobody)
        return -len(against | by), -len(against), device

    order = [place(device) for device in accusers.keys() | accused.keys()]
    heapify(order)
    gone: dict[int, LeftOut] = {}
    while order:
        found = heappop(order)
        device = found[-1]
        if device in gone or found != place(device):
            continue  # an outdated entry: the device is in the queue again, further down
        if found[0] == 0:
            break
        against, by = accusers.pop(device, nobody), accused.pop(device, nobody)
        gone[device] = LeftOut.BAD_BOXES if len(against) >= len(by) else LeftOut.COMPLAINTS
        for other in against | by:
            accused.get(other, nobody).discard(device)
            accusers.get(other, nobody).discard(device)
            heappush(order, place(other))
    return gone
