import pytest

from groupwise.workbench.pipeline import Stages, simulate, with_samplers, with_trainers


def test_hand_worked_steps() -> None:
    """Sampling 3, 3, 5 s, training 2, 4, 2 s, handing over 0.5 s.

    In turn: 3+2+0.5 = 5.5; +3+4+0.5 = 13; +5+2+0.5 = 20.5.
    Overlapped: 3 alone; max(2, 3) + 0.5 = 6.5; max(4, 5) + 0.5 = 12; max(2, 0) + 0.5 = 14.5.
    """
    steps = [
        Stages(sample=sample, train=train, hand_over=0.5)
        for sample, train in ((3.0, 2.0), (3.0, 4.0), (5.0, 2.0))
    ]
    assert simulate(steps, overlap=0).finished == (5.5, 13.0, 20.5)
    timeline = simulate(steps, overlap=1)
    assert timeline.finished == (6.5, 12.0, 14.5)
    assert timeline.seconds == 14.5
    assert timeline.sampler_busy == pytest.approx(11 / 14.5)
    assert timeline.trainer_busy == pytest.approx(8 / 14.5)


@pytest.mark.parametrize("sample", [0.0, 0.3, 1.0, 4.0])
def test_the_gain_is_at_most_the_shorter_stage(sample: float) -> None:
    steps = [Stages(sample=sample, train=1.0)] * 50
    plain, overlapped = (simulate(steps, overlap=overlap).seconds for overlap in (0, 1))
    assert plain - overlapped == pytest.approx(49 * min(sample, 1.0))
    assert overlapped >= plain / 2


def test_one_step_gains_nothing() -> None:
    steps = [Stages(sample=2.0, train=1.0, hand_over=0.1)]
    assert simulate(steps, overlap=1).finished == simulate(steps, overlap=0).finished == (3.1,)


def test_more_samplers_help_until_the_trainer_is_the_slower() -> None:
    stages = Stages(sample=4.0, train=1.0)
    seconds = [simulate([with_samplers(stages, n)] * 100, overlap=1).seconds for n in (1, 2, 4, 8)]
    assert seconds == pytest.approx([401.0, 201.0, 101.0, 100.5])
    assert simulate([with_trainers(stages, 2)] * 100, overlap=1).seconds == pytest.approx(400.5)


@pytest.mark.parametrize(
    ("steps", "overlap", "sentence"),
    [
        ([], 0, "no steps"),
        ([Stages(sample=1.0, train=1.0)], 2, "may be 0 or 1"),
        ([Stages(sample=-1.0, train=1.0)], 0, "less than no time"),
    ],
)
def test_what_makes_no_sense(steps: list[Stages], overlap: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        simulate(steps, overlap=overlap)
