"""Double entry: a charge and its release cancel out, and the check sees every wrong amount."""

from allotment.core.ledger import ledger
from allotment.core.ledger.ledger import Ledger
from allotment_proto.facts import Holding, Inventory
from tests import build


def a_ledger() -> Ledger:
    return Ledger(Inventory("vgpu", "hami-core", (build.card(0), build.card(1))))


def test_charge_and_release_cancel_out() -> None:
    books = a_ledger()
    card = books.by_id["GPU-0"]
    books.charge("a", build.holding(memory_mib=1_000, cores_pct=10))
    assert (card.used_slots, card.used_memory_mib, card.used_cores_pct) == (1, 1_000, 10)
    assert list(ledger.check(books, "n")) == []
    books.release("a", build.holding(memory_mib=1_000, cores_pct=10))
    assert (card.used_slots, card.used_memory_mib, card.used_cores_pct) == (0, 0, 0)


def test_containers_of_one_pod_are_charged_each() -> None:
    books = a_ledger()
    for container in (0, 1):
        books.charge("a", Holding("vgpu", container, "GPU-0", 1_000, 10))
    assert books.by_id["GPU-0"].used_memory_mib == 2_000


def test_a_second_charge_for_the_same_container_changes_nothing() -> None:
    books = a_ledger()
    books.charge("a", build.holding(memory_mib=1_000))
    books.charge("a", build.holding(memory_mib=9_000))
    assert books.by_id["GPU-0"].used_memory_mib == 1_000
    books.release("a", build.holding(memory_mib=9_000))
    assert books.by_id["GPU-0"].used_memory_mib == 0


def test_unknown_cards_and_holders_are_passed_over() -> None:
    books = a_ledger()
    books.charge("a", build.holding("GPU-gone"))
    books.release("a", build.holding("GPU-gone"))
    books.release("nobody", build.holding("GPU-0"))
    assert list(ledger.check(books, "n")) == []


def test_a_copy_is_independent() -> None:
    books = a_ledger()
    books.charge("a", build.holding())
    twin = books.copy()
    twin.charge("b", build.holding())
    assert books.by_id["GPU-0"].used_slots == 1
    assert twin.by_id["GPU-0"].used_slots == 2
    assert twin.cards[0] is twin.by_id["GPU-0"]


def test_overbooked_cards_are_oversold() -> None:
    books = a_ledger()
    books.charge("a", build.holding(memory_mib=16_000))
    assert not books.by_id["GPU-0"].oversold
    books.charge("b", build.holding(memory_mib=1))
    assert books.by_id["GPU-0"].oversold


def test_the_check_sees_a_wrong_amount() -> None:
    books = a_ledger()
    books.charge("a", build.holding(memory_mib=1_000))
    books.by_id["GPU-0"].free_memory_mib += 1
    (problem,) = ledger.check(books, "n1/vgpu")
    assert problem.startswith("n1/vgpu/GPU-0: free (slots, MiB, cores) is booked as (9, 15001, 75)")
