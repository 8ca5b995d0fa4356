"""What a finding does to a run beside being told: settings are adjusted, or the run goes back to a healthy state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from groupwise.config.health import FACTORS, ActionConfig
from groupwise.errors import CheckpointError
from groupwise.records import Finding, Severity
from groupwise.records.health_file import Act, ActionTaken

_ORDER = tuple(Severity)
_LEAST = {"adjust": Severity.WARNING, "rollback": Severity.CRITICAL}


@dataclass(slots=True, kw_only=True)
class _Held:
    """What is remembered of the action of one check."""

    taken: int = 0
    """How often, over the whole run."""
    in_force: int = 0
    """How many of its adjustments have not been taken back."""
    step: int = 0
    """After which it was taken last."""
    told: bool = False
    """That it will not be taken any more."""


@dataclass(slots=True, kw_only=True)
class _Abandoned:
    """Steps that were given up by going back."""

    to: int
    """The step gone back to."""
    at: int
    """The step after which that was done."""


@dataclass(slots=True, kw_only=True, eq=False)
class Actions:
    """Decides after each step what findings do, and holds what that has made of the settings."""

    rules: Mapping[str, ActionConfig] = field(default_factory=dict)
    """By the name of a check."""
    healthy_steps: Callable[[], Sequence[int]] = tuple
    """The steps of the checkpoints that a run may go back to, in order, each of them whole."""
    _held: dict[str, _Held] = field(init=False)
    _abandoned: list[_Abandoned] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._held = {name: _Held() for name in self.rules}

    def factor(self, setting: str) -> float:
        """What a setting of `FACTORS` is multiplied by now: 1 where nothing was adjusted."""
        product = 1.0
        for name, rule in self.rules.items():
            product *= rule.factors.get(setting, 1.0) ** self._held[name].in_force
        return product

    @property
    def goes_back(self) -> frozenset[str]:
        """Names of the checks whose action is a rollback."""
        return frozenset(name for name, rule in self.rules.items() if rule.do == "rollback")

    def decide(self, step: int, seen: Sequence[Finding], open_checks: Iterable[str]) -> list[ActionTaken]:
        """What is done after a step; at most one rollback, and nothing beside it.

        Args:
            step: that is finished.
            seen: findings of this very step.
            open_checks: checks of which a finding has begun and not ended.
        """
        still = frozenset(open_checks)
        taken: list[ActionTaken] = []
        for name, rule in sorted(self.rules.items(), key=lambda each: each[1].do != "rollback"):
            held = self._held[name]
            own = [f for f in seen if f.check == name and _rank(f.severity) >= _rank(_least(rule))]
            if not own:
                if rule.revert and held.in_force and name not in still:
                    taken.append(self._revert(step, name))
            elif held.taken >= rule.times:
                if not held.told:
                    taken.append(self._give_up(step, name))
            elif rule.do == "rollback":
                return [self._go_back(step, name)]
            elif held.taken == 0 or step - held.step >= rule.wait_steps:
                taken.append(self._adjust(step, name))
        return taken

    def _adjust(self, step: int, name: str, *, why: str = "") -> ActionTaken:
        self._count(step, name)
        return self._made(step, name, Act.ADJUST, f"{self._changed(name)}{why}")

    def _revert(self, step: int, name: str) -> ActionTaken:
        self._held[name].in_force = 0
        return self._made(step, name, Act.REVERT, f"its finding is over, so {self._changed(name)}")

    def _give_up(self, step: int, name: str) -> ActionTaken:
        rule, held = self.rules[name], self._held[name]
        held.told = True
        ends = rule.then == "stop"
        said = "the run ends (then: stop)" if ends else "from here on its findings are only told"
        sentence = f"was taken {held.taken} times, as often as health.actions.{name}.times allows; {said}"
        return self._made(step, name, Act.STOP if ends else Act.WARN, sentence)

    def _go_back(self, step: int, name: str) -> ActionTaken:
        to = self._target()
        if to is None:
            return self._adjust(step, name, why="; there is no healthy checkpoint to go back to")
        self._count(step, name)
        self._abandoned.append(_Abandoned(to=to, at=step))
        place = f"step {to}" if to else "the start"
        sentence = f"back to the weights of {place}, and {self._changed(name)}"
        return self._made(step, name, Act.ROLLBACK, sentence, to=to)

    def _target(self) -> int | None:
        """The last healthy step that was not given up; one that was gone back to before only for want of another."""
        found = [s for s in self.healthy_steps() if not any(a.to < s <= a.at for a in self._abandoned)]
        used = {each.to for each in self._abandoned}
        fresh = [s for s in found if s not in used]
        chosen = fresh or found
        return chosen[-1] if chosen else None

    def _count(self, step: int, name: str) -> None:
        held = self._held[name]
        held.taken, held.in_force, held.step = held.taken + 1, held.in_force + 1, step

    def _changed(self, name: str) -> str:
        now = (
            f"{FACTORS[key]} is multiplied by {self.factor(key):.4g} in all"
            for key in self.rules[name].factors
        )
        return ", ".join(now)

    def _made(self, step: int, name: str, act: Act, what: str, *, to: int | None = None) -> ActionTaken:
        rule, held = self.rules[name], self._held[name]
        return ActionTaken(
            step=step,
            check=name,
            act=act,
            number=held.taken,
            times=rule.times,
            factors={key: self.factor(key) for key in rule.factors},
            to_step=to,
            sentence=f"{act} after step {step}, for {name} ({held.taken} of {rule.times}): {what}",
        )

    def state(self) -> dict[str, Any]:
        """See `checkpoint.state.Stateful`."""
        return {
            "held": {name: asdict(held) for name, held in self._held.items()},
            "abandoned": [asdict(each) for each in self._abandoned],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`. What a check has adjusted that has no action any more is taken back.

        Raises:
            CheckpointError: it is not such a state.
        """
        try:
            known = {name: _Held(**held) for name, held in state["held"].items()}
            self._abandoned = [_Abandoned(**each) for each in state["abandoned"]]
        except (LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"the state of the actions is damaged ({error!r}); was it written by another version?"
            ) from None
        self._held = {name: known.get(name, _Held()) for name in self.rules}


def _least(rule: ActionConfig) -> Severity:
    return _LEAST[rule.do] if rule.severity is None else Severity(rule.severity)


def _rank(severity: Severity) -> int:
    return _ORDER.index(severity)
