"""What a service does while nobody waits, so that who comes next need not wait for it."""

from collections.abc import Callable

from allotment.adapters.telemetry.log import Logger, one_line


class Ahead:
    """Work that can be left undone. Who needs its result meets a failure as well, and says so for
    himself; so here it is said once, until the work succeeds again: it may fail with every record.
    """

    def __init__(self, log: Logger, forget: Callable[[], None]) -> None:
        """After a failure `forget` throws away what was made, which may be half done."""
        self._log = log
        self._forget = forget
        self._is_failing = False

    def try_to(self, prepare: Callable[[], None], seq: int) -> None:
        """Do it; `seq` says of the log how far it was followed."""
        try:
            prepare()
        except Exception as error:  # whatever it is: cycles do without
            self._forget()
            if not self._is_failing:
                self._log.warning(
                    "nothing can be prepared for the next cycle, so it takes longer",
                    seq=seq,
                    error=one_line(error),
                )
            self._is_failing = True
        else:
            self._is_failing = False
