"""What `groupwise plan` prints: memory, fit or not and what would help, seconds, and what more hardware would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groupwise.config import LoadedConfig, load
from groupwise.errors import ConfigError
from groupwise.workbench.check import batch_arithmetic, micro_batch_arithmetic
from groupwise.workbench.planning.devices import GIB, Device, Layout
from groupwise.workbench.planning.duration import REACHED, stages_of
from groupwise.workbench.planning.memory import Memory, memory_of
from groupwise.workbench.planning.pipeline import Stages, simulate
from groupwise.workbench.planning.settings import Setting, setting_of
from groupwise.workbench.planning.shapes import Shape, shape_of

TIGHT = 0.05
"""Share of the memory that should stay free: lengths vary, and the formulas are off by some percent."""
_STEPS = 40  # of a simulated run
_LEAST_MICRO_TOKENS = 512
_COUNTS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked."""

    loaded: LoadedConfig
    """The configuration."""
    device: Device
    """What each process computes on."""
    layout: Layout
    """How many."""
    prompt_tokens: int | None
    """Longest prompt; None for what the configuration bounds."""
    new_tokens: int | None
    """Tokens of a usual response, for the seconds; None for the limit. Memory is that of the limit."""
    reward_seconds: float
    """To score a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A change of the configuration that saves memory."""

    name: str
    """For people: the settings."""
    words: tuple[str, ...]
    """`key=value`."""
    saves: float | None
    """Bytes of the peak, with the switches before it; None where it cannot be made."""
    peak: float
    """With it and those before it."""
    why_not: str
    """The reason where it cannot be made, or saves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The plan."""

    lines: tuple[str, ...]
    """To print."""
    fits: bool
    """The peak is within the device's memory."""
    peak: float
    """Bytes of one device, at most."""
    switches: tuple[Switch, ...]
    """What was tried where it does not fit, in order."""
    stages: Stages
    """Seconds of the parts of a step."""


def plan(asked: Request) -> Answer:
    """All of it.

    Raises:
        ConfigError: the method samples nothing, or lengths exceed the model's context.
        ModelError: no such model, or one whose sizes do not follow from its configuration.
    """
    config = asked.loaded.config
    shape = shape_of(config.model, asked.loaded.base)
    setting = _setting(asked, asked.loaded, shape)
    memory = memory_of(setting)
    fits = memory.peak <= asked.device.memory
    switches = () if fits else tuple(_switches(asked, shape, memory.peak))
    usual = replace(setting, new_tokens=asked.new_tokens or setting.new_tokens)
    stages = stages_of(
        usual, asked.device, asked.layout, reward_seconds=asked.reward_seconds, apart=usual.served
    )
    lines = [
        *_introduced(asked, shape, setting),
        "",
        *_memory_table(memory),
        _verdict(asked, memory),
        *_tried(asked, switches),
        *_more_devices(asked, shape, fits=fits),
        "",
        *_seconds(asked, usual, stages),
        "",
        *_more(asked, usual),
    ]
    return Answer(lines=tuple(lines), fits=fits, peak=memory.peak, switches=switches, stages=stages)


def _setting(asked: Request, loaded: LoadedConfig, shape: Shape) -> Setting:
    return setting_of(loaded.config, shape, asked.device, asked.layout, prompt_tokens=asked.prompt_tokens)


def _introduced(asked: Request, shape: Shape, setting: Setting) -> list[str]:
    config, layout, n = asked.loaded.config, asked.layout, asked.layout.processes
    tied = "tied" if shape.tied else "a head of its own"
    each = f"{asked.device.name}, {asked.device.memory / GIB:.1f} GiB"
    nodes = f" on each of {layout.nodes} nodes" if layout.nodes > 1 else ""
    how = f", distributed.strategy {config.distributed.strategy}" if n > 1 else ""
    bounded = asked.prompt_tokens is not None or config.prompts.max_prompt_tokens is not None
    longest = f"prompts of {setting.prompt_tokens} tokens"
    if not bounded:
        longest += " (assumed: prompts.max_prompt_tokens is null; --prompt-tokens says another number)"
    count = shape.weights / 1e9
    lines = [
        _line(
            "model",
            f"{shape.name}: {count:.3g} billion weights, {shape.layers} layers of width {shape.hidden}, "
            f"{shape.vocabulary} tokens, {tied}",
        ),
        _line("device", f"{layout.gpus} x {each}{nodes}{how}"),
        _line("batch", batch_arithmetic(config)),
        _line("", micro_batch_arithmetic(config)),
    ]
    if n > 1:
        spare = (
            "" if setting.prompts % n == 0 else f", so that some wait: {setting.prompts} / {n} is not whole"
        )
        lines.append(
            _line("", f"A process samples at most {setting.share} of {setting.prompts} prompts{spare}.")
        )
    passes = setting.passes()
    largest = max(passes, key=lambda one: one.tokens)
    lines.append(
        _line(
            "lengths",
            f"{longest}, responses of {setting.new_tokens}: {len(passes)} pass{'es' if len(passes) > 1 else ''} for an "
            f"update, of at most {largest.tokens} tokens",
        )
    )
    return lines


def _memory_table(memory: Memory) -> list[str]:
    """Parts by phase."""
    names = list(dict.fromkeys(part for parts in memory.phases.values() for part in parts))
    wide = max(len(name) for name in (*names, "allocator and libraries"))
    head = "".join(f"{phase:>11}" for phase in memory.phases)
    lines = [f"{'GiB of a device':<{wide}}{head}"]
    for name in names:
        cells = "".join(
            f"{parts[name] / GIB:>11.2f}" if parts.get(name) else f"{'':>11}"
            for parts in memory.phases.values()
        )
        if cells.strip():
            lines.append(f"{name:<{wide}}{cells}")
    sums = [sum(parts.values()) for parts in memory.phases.values()]
    over = [memory.overhead.base + (memory.overhead.factor - 1) * each for each in sums]
    lines.append(f"{'allocator and libraries':<{wide}}" + "".join(f"{each / GIB:>11.2f}" for each in over))
    totals = [a + b for a, b in zip(sums, over, strict=True)]
    lines.append(f"{'all':<{wide}}" + "".join(f"{each / GIB:>11.2f}" for each in totals))
    return lines


def _verdict(asked: Request, memory: Memory) -> str:
    room = asked.device.memory - memory.peak
    peak = f"{memory.peak / GIB:.1f} of {asked.device.memory / GIB:.1f} GiB, in {memory.worst}"
    if room < 0:
        return _line("peak", f"{peak}: it does not fit, {-room / GIB:.1f} GiB are missing")
    if room < TIGHT * asked.device.memory:
        return _line(
            "peak", f"{peak}: it fits, but {room / GIB:.1f} GiB are little room for what is not counted"
        )
    return _line("peak", f"{peak}: it fits, with {room / GIB:.1f} GiB to spare")


def candidates(loaded: LoadedConfig, layout: Layout) -> list[tuple[str, ...]]:
    """Changes that save memory, in the order to try: those that change nothing but time come first.

    Each is a list of `key=value`, with what has to go along so that settings fit together.
    """
    config = loaded.config
    found: list[tuple[str, ...]] = []
    if not config.training.gradient_checkpointing:
        found.append(("training.gradient_checkpointing=true",))
    if layout.processes > 1 and config.distributed.strategy == "ddp":
        found.append(("distributed.strategy=fsdp2", "memory.reference=auto"))
    if config.lora is None:
        found.append(("lora.rank=16", "reference=null", "memory.reference=auto"))
    if config.model.dtype == "float32":
        found.append(("model.dtype=bfloat16", "model.precision=auto"))
    if config.memory.quantise is None:
        found.append(("memory.quantise=nf4", "distributed.strategy=ddp", "training.compile=false"))
    if config.objective.kl.beta > 0 and config.memory.reference != "cpu":
        found.append(("memory.reference=cpu",))
    tokens = config.training.micro_batch_tokens
    while tokens > _LEAST_MICRO_TOKENS:
        tokens = max(_LEAST_MICRO_TOKENS, tokens // 2)
        found.append((f"training.micro_batch_tokens={tokens}",))
    cache = config.rollout.cache_megabytes
    if cache > 512 and config.rollout.engine == "in_process":
        found.append(("rollout.cache_megabytes=512",))
    group = config.rollout.group_size
    while group >= 8:
        group //= 2
        found.append((f"rollout.group_size={group}",))
    return found


def _switches(asked: Request, shape: Shape, peak: float) -> list[Switch]:
    """Each with those before it, until it fits."""
    loaded, tried = asked.loaded, []
    for words in candidates(loaded, asked.layout):
        switch, loaded = _switch(asked, shape, loaded, words, peak)
        tried.append(switch)
        peak = switch.peak
        if peak <= asked.device.memory:
            break
    return tried


def _switch(
    asked: Request, shape: Shape, loaded: LoadedConfig, words: tuple[str, ...], peak: float
) -> tuple[Switch, LoadedConfig]:
    """What a change does, and the configuration with it; as it was where it cannot be made or saves nothing."""
    try:
        changed = load(loaded, words)
        now = memory_of(_setting(asked, changed, shape)).peak
    except ConfigError as error:
        reason = str(error).split(": ", 1)[-1].split("; ")[0]
        return Switch(name=words[0], words=words, saves=None, peak=peak, why_not=reason), loaded
    if now >= peak:
        return Switch(
            name=words[0],
            words=words,
            saves=0.0,
            peak=peak,
            why_not="saves nothing at the peak, and is left out",
        ), loaded
    return Switch(name=words[0], words=words, saves=peak - now, peak=now, why_not=""), changed


def _tried(asked: Request, switches: Sequence[Switch]) -> list[str]:
    if not switches:
        return []
    lines = [_line("switches", "in the order to try, each with those above it:")]
    for switch in switches:
        if switch.saves:
            fits = "it fits" if switch.peak <= asked.device.memory else "not yet"
            said = f"saves {switch.saves / GIB:.1f} GiB: {switch.peak / GIB:.1f}, {fits}"
        else:
            said = switch.why_not
        lines.append(_line("", f"{switch.name}: {said}"))
    if switches[-1].peak > asked.device.memory:
        lines.append(_line("", "none of them is enough: take a larger or another device, or a smaller model"))
    return lines


def _more_devices(asked: Request, shape: Shape, *, fits: bool) -> list[str]:
    """How many devices it takes to train the same weights, divided and with checkpointing."""
    words = ["distributed.strategy=fsdp2", "memory.reference=auto", "training.gradient_checkpointing=true"]
    if fits or asked.loaded.config.memory.quantise is not None:
        return []
    divided = load(asked.loaded, [*words, "training.compile=false"])
    for count in _COUNTS:
        layout = Layout(gpus=min(count, 8), nodes=max(1, count // 8))
        if count <= asked.layout.processes:
            continue
        peak = memory_of(_setting(replace(asked, layout=layout), divided, shape)).peak
        if peak <= asked.device.memory:
            said = f"{count} such devices hold it, {peak / GIB:.1f} GiB each, with {words[0]} and {words[2]}"
            return [_line("", said)]
    what = "scoring" if asked.loaded.config.rollout.engine == "vllm" else "sampling"
    return [
        _line("", f"no number of such devices up to {_COUNTS[-1]} holds it: {what} needs all weights on each")
    ]


def _seconds(asked: Request, setting: Setting, stages: Stages) -> list[str]:
    tokens = setting.rollouts * setting.new_tokens
    reached = REACHED[asked.device.kind]
    step = _step_seconds(stages, setting.overlap)
    handed = f", handing weights over {_duration(stages.push)}" if setting.served else ""
    each = f"{setting.overlap} ahead" if setting.overlap else "one after the other"
    n = asked.layout.processes
    return [
        _line(
            "a step",
            f"{_duration(step)}: sampling {_duration(stages.generate)}, rewards {_duration(stages.reward)}, "
            f"training {_duration(stages.train)}{handed}; {tokens / step:,.0f} new tokens a second",
        ),
        *(
            [
                _line(
                    "",
                    f"with a vLLM server on {n} more such device{'s' if n > 1 else ''}, {each}; its memory is not "
                    "counted above",
                )
            ]
            if setting.served
            else []
        ),
        _line(
            "",
            f"with responses of {setting.new_tokens} tokens, {reached.products:.0%} of the device's products and "
            f"{reached.reading:.0%} of its bandwidth reached (docs/plan.md)",
        ),
    ]


def _step_seconds(stages: Stages, overlap: int) -> float:
    """What a step takes when all are alike."""
    return simulate([stages] * _STEPS, overlap=overlap).seconds_per_step


def _more(asked: Request, setting: Setting) -> list[str]:
    """What the pipeline would do with samplers of their own, with more of them, and with more trainers."""
    n = asked.layout.processes
    now = stages_of(setting, asked.device, asked.layout, reward_seconds=asked.reward_seconds).total
    rows = []
    for overlap, samplers, trainers in (
        (0, n, n),
        (1, n, n),
        (1, 2 * n, n),
        (1, n, 2 * n),
        (1, 2 * n, 2 * n),
    ):
        layout = replace(asked.layout, nodes=asked.layout.nodes * trainers // n)
        stages = stages_of(
            replace(setting, processes=trainers),
            asked.device,
            layout,
            reward_seconds=asked.reward_seconds,
            samplers=samplers,
            apart=True,
        )
        line = simulate([stages] * _STEPS, overlap=overlap)
        rows.append(
            f"{samplers:>9}{trainers:>10}{overlap:>9}{_duration(line.seconds_per_step):>12}"
            f"{now / line.seconds_per_step:>9.2f}{line.sampler_idle:>14.0%}{line.trainer_idle:>14.0%}"
        )
    head = f"{'samplers':>9}{'trainers':>10}{'overlap':>9}{'a step':>12}{'gain':>9}"
    head += f"{'sampler idle':>14}{'trainer idle':>14}"
    return [
        _line(
            "pipeline",
            f"against {n} device{'s' if n > 1 else ''} that sample and train in turn, by simulation:",
        ),
        head,
        *rows,
    ]


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def _line(title: str, text: str) -> str:
    return f"{title:<10}  {text}"
