"""The door: counts, overflow policies and their narrowing, bounds, numbers in refusals, and what is given back."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.scripted_engine import with_tiers
from ultrafast.engine.admission import Admission, Ticket
from ultrafast.engine.tiers import TIERS, Overflow
from ultrafast.errors import RequestError


def small(**changes: dict[str, Any]) -> Admission:
    """Two slots of ultrafast with two to wait; four shared ones, two of them open to fast and to flex, with three."""
    sizes: dict[str, dict[str, Any]] = {
        "ultrafast": {"slots": 2, "queue": 2},
        "fast": {"slots": 2},
        "default": {"slots": 4, "queue": 3},
        "flex": {"slots": 2},
    }
    return Admission(with_tiers(**{tier: size | changes.get(tier, {}) for tier, size in sizes.items()}))


def refusal(admission: Admission, tier: str, **kwargs: Any) -> RequestError:
    before = [(admission.num_open(t), admission.num_waiting(t)) for t in TIERS]
    with pytest.raises(RequestError) as error:
        admission.admit(tier, **kwargs)
    assert [(admission.num_open(t), admission.num_waiting(t)) for t in TIERS] == before, "all or none"
    return error.value


@pytest.mark.parametrize("tier", TIERS)
def test_with_free_slots_everybody_gets_what_they_ask(tier: str) -> None:
    admission = small()
    assert [admission.admit(tier) for _ in range(2)] == [Ticket(tier, tier, queued=False)] * 2
    assert admission.num_open(tier) == 2
    assert admission.num_waiting(tier) == 0


def test_queue() -> None:
    admission = small()
    assert [admission.admit("ultrafast").queued for _ in range(4)] == [False, False, True, True]
    error = refusal(admission, "ultrafast")
    assert (error.status, error.code, error.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert error.message.startswith("ultrafast has 2 slots, all in use, and 2 requests wait. Try again in 1 s")
    assert error.retry_after == 1.0


def test_reject() -> None:
    admission = small(ultrafast={"overflow": Overflow.REJECT})
    admission.admit("ultrafast", count=2)
    assert "2 slots, all in use, and 0 requests wait" in refusal(admission, "ultrafast").message


def test_default() -> None:
    admission = small(ultrafast={"overflow": Overflow.DEFAULT})
    admission.admit("ultrafast", count=2)
    assert admission.admit("ultrafast") == Ticket("ultrafast", "default", queued=False)
    assert (admission.num_open("ultrafast"), admission.num_open("default")) == (2, 1)
    admission.admit("default", count=3)
    assert admission.admit("ultrafast") == Ticket("ultrafast", "default", queued=True), "it waits in default's queue"
    admission.admit("default", count=2)
    assert refusal(admission, "ultrafast").message.startswith("default has 4 slots, all in use, and 3 requests wait")


def test_a_full_default_tier_decides_for_what_overflows_into_it() -> None:
    admission = small(ultrafast={"overflow": Overflow.DEFAULT}, default={"overflow": Overflow.REJECT})
    admission.admit("ultrafast", count=2)
    admission.admit("default", count=4)
    assert refusal(admission, "ultrafast").status == 429


def test_flex_is_refused_without_room_and_never_served_otherwise() -> None:
    admission = small()
    admission.admit("flex", count=2)
    error = refusal(admission, "flex")
    assert (error.status, error.code) == (429, "resource_unavailable")
    assert admission.num_open("default") == 0


def test_the_shared_tiers_share_slots_and_leave_ultrafast_its_own() -> None:
    admission = small()
    admission.admit("default", count=3)
    admission.admit("fast")
    error = refusal(admission, "flex")
    assert error.message.startswith("fast, default, flex share 4 slots, all in use, and 0 requests wait")
    assert admission.admit("default").queued
    assert not admission.admit("ultrafast", count=2).queued


def test_lower_tiers_do_not_fill_a_higher_one() -> None:
    admission = small()
    admission.admit("flex", count=2)
    admission.admit("default", count=4)  # `flex` gives way
    assert admission.admit("fast", count=2) == Ticket("fast", "fast", queued=False)  # and so does `default`
    assert admission.admit("fast") == Ticket("fast", "default", queued=True)


POLICIES = list(Overflow)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("wish", POLICIES)
@pytest.mark.parametrize("full", [False, True])
def test_a_request_may_narrow_the_policy_and_not_widen_it(policy: Overflow, wish: Overflow, full: bool) -> None:
    admission = small(ultrafast={"overflow": policy})
    if full:
        admission.admit("ultrafast", count=2)
    if POLICIES.index(wish) < POLICIES.index(policy):
        error = refusal(admission, "ultrafast", overflow=wish)
        assert (error.status, error.param) == (400, "service_tier_overflow")
        assert repr(wish.value) in error.message
        assert repr(policy.value) in error.message
    elif not full:
        assert admission.admit("ultrafast", overflow=wish) == Ticket("ultrafast", "ultrafast", queued=False)
    elif wish is Overflow.REJECT:
        assert refusal(admission, "ultrafast", overflow=wish).status == 429
    else:
        served = "default" if wish is Overflow.DEFAULT else "ultrafast"
        assert admission.admit("ultrafast", overflow=wish).admitted == served


def test_who_asks_for_default_may_say_default() -> None:
    admission = small(default={"overflow": Overflow.REJECT})
    assert admission.admit("default", overflow=Overflow.DEFAULT).admitted == "default"
    admission.admit("default", count=3)
    assert refusal(admission, "default", overflow=Overflow.DEFAULT).status == 429


def test_all_or_none() -> None:
    admission = small()
    admission.admit("ultrafast")
    assert "no room for 4 at once" in refusal(admission, "ultrafast", count=4).message
    assert admission.admit("ultrafast", count=3) == Ticket("ultrafast", "ultrafast", queued=True)


def test_more_at_once_than_there_ever_is_is_no_matter_of_time() -> None:
    error = refusal(small(), "ultrafast", count=5)
    assert (error.status, error.param) == (400, "n")
    assert "2 slots and a queue of 2" in error.message
    assert refusal(small(fast={"slots": 8}), "fast", count=5, overflow=Overflow.REJECT).status == 400
    closed = refusal(small(flex={"slots": 0}), "flex")
    assert (closed.status, closed.param) == (400, "service_tier")


def test_what_is_given_back_is_free() -> None:
    admission = small()
    tickets = [admission.admit("ultrafast") for _ in range(4)]
    admission.release(tickets[0], length_s=1.0)
    assert admission.num_waiting("ultrafast") == 2, "nobody has told yet that they begin"
    begun = admission.started(tickets[2])
    assert begun == Ticket("ultrafast", "ultrafast", queued=False)
    assert (admission.num_open("ultrafast"), admission.num_waiting("ultrafast")) == (3, 1)
    for ticket in (tickets[1], begun, tickets[3]):
        admission.release(ticket)
    assert (admission.num_open("ultrafast"), admission.num_waiting("ultrafast")) == (0, 0)
    assert admission.admit("ultrafast", count=2) == Ticket("ultrafast", "ultrafast", queued=False)


def test_one_who_waits_is_not_overtaken_at_the_door() -> None:
    admission = small()
    first = admission.admit("ultrafast")
    admission.admit("ultrafast")
    admission.admit("ultrafast")
    admission.release(first)
    assert admission.admit("ultrafast").queued


@pytest.mark.parametrize(
    ("lengths", "waiting", "expected"),
    [([], 2, 1.0), ([0.1], 2, 1.0), ([4.0, 8.0], 2, 9.0), ([4.0], 0, 2.0), ([500.0], 2, 60.0)],
)
def test_advice_grows_with_the_length_of_requests_and_of_the_queue(
    lengths: list[float], waiting: int, expected: float
) -> None:
    admission = small(ultrafast={"queue": waiting})
    for length in lengths:
        admission.release(admission.admit("ultrafast"), length_s=length)
    for _ in range(2 + waiting):
        admission.admit("ultrafast")
    assert refusal(admission, "ultrafast").retry_after == expected


def test_waiting_in_vain_says_how_long() -> None:
    admission = small(ultrafast={"queue_timeout_s": 2.5})
    error = admission.waited_in_vain(admission.admit("ultrafast"))
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert error.message.startswith("no slot of ultrafast came free within 2.5 s")


def test_threads() -> None:
    admission = small(ultrafast={"queue": 1000})

    def visit() -> None:
        for _ in range(500):
            ticket = admission.admit("ultrafast")
            admission.release(admission.started(ticket))

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (admission.num_open("ultrafast"), admission.num_waiting("ultrafast")) == (0, 0)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_counts_hold_through_any_history(data: st.DataObject) -> None:
    admission = small(
        ultrafast={"overflow": data.draw(st.sampled_from(POLICIES))},
        fast={"queue": 2},
        flex={"overflow": Overflow.QUEUE},
    )
    tickets: list[Ticket] = []
    for _ in range(data.draw(st.integers(0, 40))):
        move = data.draw(st.sampled_from(["admit", "started", "release"]))
        if move == "admit":
            count = data.draw(st.integers(1, 5))
            overflow = data.draw(st.sampled_from([None, *POLICIES]))
            try:
                ticket = admission.admit(data.draw(st.sampled_from(TIERS)), overflow=overflow, count=count)
            except RequestError:
                continue  # whose counts are as they were, or the next move shows it
            assert ticket.admitted in (ticket.asked, "default")
            tickets += [ticket] * count
        elif tickets:
            index = data.draw(st.integers(0, len(tickets) - 1))
            if move == "started":
                tickets[index] = admission.started(tickets[index])
            else:
                admission.release(tickets.pop(index))
        for tier in TIERS:
            mine = [ticket for ticket in tickets if ticket.admitted == tier]
            assert admission.num_open(tier) == len(mine)
            assert admission.num_waiting(tier) == sum(ticket.queued for ticket in mine)
