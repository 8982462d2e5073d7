"""The coding environment of seed 004's appendix A: submit a function, see its tests' results, earn a reward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from recipes.rubric_coding_env.tasks import Task
from reward_loop.rubrics import Action, Observation
from reward_loop.rubrics.pipeline import Episode, RubricPipeline
from reward_loop.sandbox.verdict import Sandbox

MOST_ATTEMPTS = 5


class CodingEnvironment:
    """An episode is a task: it ends when all tests pass, or after five submissions.

    Programs run in `sandbox`. The weights of an episode are those that `pipeline` has when it begins.
    """

    def __init__(self, tasks: Sequence[Task], pipeline: RubricPipeline, sandbox: Sandbox) -> None:
        self._tasks = cycle(tasks)
        self._pipeline = pipeline
        self._sandbox = sandbox
        self._history: list[str] = []
        self.task: Task = tasks[0]
        self.episode: Episode = pipeline.start_episode()

    def reset(self) -> Observation:
        """Begin the next task."""
        self.task = next(self._tasks)
        self.episode = self._pipeline.start_episode()
        self._history = []
        return Observation(message=self.task.description, metadata={"test_cases": list(self.task.public_tests)})

    async def step(self, action: Action) -> Observation:
        """Run a submission against all tests, and say what it earned."""
        results = await self._sandbox.run_tests(action.message, self.task.tests, stop_at_failure=False)
        self._history.append(action.message)
        solved = all(result.verdict == "passed" for result in results)
        observation = Observation(
            done=solved or len(self._history) == MOST_ATTEMPTS,
            message=next((result.message for result in results if result.verdict != "passed"), "All tests pass."),
            metadata={
                "test_results": [result.verdict for result in results],
                "submission_history": list(self._history),
                "most_attempts": MOST_ATTEMPTS,
            },
        )
        composed = await self.episode.evaluate(action, observation)
        observation.reward = composed.reward
        observation.metadata["reward_components"] = composed.components
        return observation
