"""How far a service is behind the log, in records and in seconds."""

import time

from allotment.adapters.service.moments import local_text
from allotment.adapters.service.world import LAG_MARKS_MAX, Lag, _log_condition, silent_since_ms


def test_a_fold_at_the_end_is_not_behind() -> None:
    lag = Lag()
    lag.look(10, 10, 1.0)
    assert (lag.records, lag.seconds(5.0)) == (0, 0.0)
    lag.look(9, 10, 2.0)  # what the leader said a moment ago is older than what was folded since
    assert (lag.records, lag.seconds(5.0)) == (0, 0.0)


def test_seconds_count_from_when_the_oldest_missing_record_was_known() -> None:
    lag = Lag()
    lag.look(10, 8, 1.0)
    lag.look(14, 8, 2.0)
    assert (lag.records, lag.seconds(4.0)) == (6, 3.0)
    lag.look(14, 10, 5.0)  # what was known at 1.0 is applied, what was known at 2.0 is not
    assert (lag.records, lag.seconds(5.0)) == (4, 3.0)
    lag.look(14, 14, 6.0)
    assert (lag.records, lag.seconds(6.0)) == (0, 0.0)


def test_a_fold_that_keeps_up_with_a_moving_end_is_hardly_behind() -> None:
    lag = Lag()
    for now in range(1000):
        lag.look(100 * (now + 1), 100 * now, float(now))
        assert lag.seconds(float(now)) <= 1.0


def test_a_fold_that_stands_still_costs_no_memory() -> None:
    lag = Lag()
    for now in range(10 * LAG_MARKS_MAX):
        lag.look(now + 2, 1, float(now))
    assert len(lag._marks) == LAG_MARKS_MAX
    assert (lag.records, lag.seconds(2000.0)) == (10 * LAG_MARKS_MAX, 2000.0)


def test_a_service_is_ready_until_it_is_behind_for_seconds_and_says_by_how_much() -> None:
    lag = Lag()
    lag.look(891, 644, 100.0)
    assert _log_condition(644, lag, 103.0, None)[0]
    holds, text = _log_condition(644, lag, 112.3, None)
    assert not holds
    assert text == "folded to 644, 247 records behind the log's end for 12.3 s"
    lag.look(891, 891, 113.0)
    assert _log_condition(891, lag, 113.0, None) == (True, "folded to 891")


def test_a_service_that_cannot_learn_where_the_log_ends_is_not_ready() -> None:
    assert silent_since_ms(time.monotonic()) is None
    before_ms = time.time_ns() // 1_000_000 - 20_000
    since_ms = silent_since_ms(time.monotonic() - 20)
    assert since_ms is not None
    assert abs(since_ms - before_ms) < 60_000
    holds, text = _log_condition(644, Lag(), 107.0, since_ms)
    assert not holds
    clock = local_text(since_ms)
    assert text == f"No news from NATS since {clock}; this is the state of then, folded to 644"
