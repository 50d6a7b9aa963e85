"""All levels in turn, cheapest first: a shown difference ends the ladder, since the question is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ultrafast.bench.verify import answers, behaviour, configuration, greedy, honesty, samples
from ultrafast.bench.verify.answers import Question
from ultrafast.bench.verify.arms import Arms
from ultrafast.bench.verify.verdict import Level, Margins, Verdict, skipped

OnLevel = Callable[[Level], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, level by level; nothing leaves a level out.

    Attributes:
        greedy_prompts: asked five times each, up to `greedy_tokens`.
        sample_prompts: asked `samples` times of each arm, up to `sample_tokens`.
        tool_requests, questions: asked three times each.
        speed_prompts: for `speed_pairs` pairs of calls of `speed_tokens`, beside `load` streams of the first arm.
        promised: see `honesty.honesty`.
    """

    greedy_prompts: Sequence[str]
    sample_prompts: Sequence[str]
    tool_requests: Sequence[str]
    questions: Sequence[Question]
    speed_prompts: Sequence[str]
    greedy_tokens: int = 48
    samples: int = 24
    sample_tokens: int = 32
    tool_tokens: int = 96
    answer_tokens: int = 64
    speed_pairs: int = 60
    speed_tokens: int = 64
    load: int = 0
    promised: float | None = None
    margins: Margins = field(default_factory=Margins)


async def climb(arms: Arms, plan: Plan, on_level: OnLevel = lambda level: None) -> list[Level]:
    """The levels, told of as they come.

    Raises:
        ServerError: an arm does not answer.
    """
    levels: list[Level] = []

    def add(level: Level) -> None:
        levels.append(level)
        on_level(level)

    first, has_logprobs = await configuration.configuration(arms)
    add(first)
    for name, title, run in _steps(arms, plan, has_logprobs):
        failing = next((level.title for level in levels if _ends_the_ladder(level)), None)
        if failing is not None:
            add(skipped(name, title, f"a difference is shown already: {failing}."))
            continue
        for level in await run():
            add(level)
    add(await _honesty(arms, plan))
    return levels


def _ends_the_ladder(level: Level) -> bool:
    return level.verdict is Verdict.FAIL and level.name != configuration.NAME


def _steps(
    arms: Arms, plan: Plan, has_logprobs: bool
) -> list[tuple[str, str, Callable[[], Awaitable[Sequence[Level]]]]]:
    async def tokens() -> Sequence[Level]:
        if not plan.greedy_prompts:
            return [
                skipped(greedy.NAME, greedy.TITLE, "left out."),
                skipped(greedy.NAME_2, greedy.TITLE_2, "left out."),
            ]
        return await greedy.greedy(
            arms, plan.greedy_prompts, max_tokens=plan.greedy_tokens, logprobs=has_logprobs, margins=plan.margins
        )

    async def sampled() -> Sequence[Level]:
        if not plan.sample_prompts:
            return [skipped(samples.NAME, samples.TITLE, "left out.")]
        return [
            await samples.samples(
                arms, plan.sample_prompts, each=plan.samples, max_tokens=plan.sample_tokens, margins=plan.margins
            )
        ]

    async def behaves() -> Sequence[Level]:
        if not plan.tool_requests:
            return [skipped(behaviour.NAME, behaviour.TITLE, "left out.")]
        return [await behaviour.behaviour(arms, plan.tool_requests, max_tokens=plan.tool_tokens, margins=plan.margins)]

    async def answered() -> Sequence[Level]:
        if not plan.questions:
            return [skipped(answers.NAME, answers.TITLE, "left out.")]
        return [await answers.answers(arms, plan.questions, max_tokens=plan.answer_tokens, margins=plan.margins)]

    return [
        (greedy.NAME, greedy.TITLE, tokens),
        (samples.NAME, samples.TITLE, sampled),
        (behaviour.NAME, behaviour.TITLE, behaves),
        (answers.NAME, answers.TITLE, answered),
    ]


async def _honesty(arms: Arms, plan: Plan) -> Level:
    if not plan.speed_prompts:
        return skipped(honesty.NAME, honesty.TITLE, "left out.")
    return await honesty.honesty(
        arms,
        plan.speed_prompts,
        pairs=plan.speed_pairs,
        max_tokens=plan.speed_tokens,
        load=plan.load,
        promised=plan.promised,
    )
