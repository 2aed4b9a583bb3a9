"""A world of rounds that are opened by the filter's rule."""

import pytest

from allotment.core.queues.session import Session
from allotment_filter.groups import Groups
from tests.unit.rounds_world import World


class Filtered(World):
    """A world whose rounds are opened by the filter's rule."""

    def open(self) -> None:
        if not hasattr(self, "groups"):
            self.groups = Groups(self.state)

    def opens_a_session(self) -> bool:
        """Whether asking for the next batch takes a session over all groups."""
        self.open()
        with pytest.MonkeyPatch.context() as patch:
            opened: list[Session] = []
            session = self.groups.rounds.session

            def noted() -> Session:
                opened.append(session())
                return opened[-1]

            patch.setattr(self.groups.rounds, "session", noted)
            self.groups.next_batch(())
        return bool(opened)

    def next(self, *held_back: str, most: int = 256) -> list[str] | None:
        self.open()
        found = self.groups.next_batch(held_back, most)
        return None if found is None else list(found.batch.uids)

    def cycle(self) -> list[str] | None:
        """The next batch, decided."""
        self.open()
        found = self.groups.next_batch(())
        if found is None:
            return None
        self.decide(list(found.batch.uids))
        self.groups.tried(found)
        return list(found.batch.uids)
