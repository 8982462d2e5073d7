"""Judges: services behind MCP, and language models that are asked for a score, for choices, or for the better of two."""

from reward_loop.rubrics.judges.criteria import CriteriaJudge
from reward_loop.rubrics.judges.criterion import Criterion
from reward_loop.rubrics.judges.llm_judge import LLMJudge
from reward_loop.rubrics.judges.mcp_client import MCPClient
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.pairwise import PairwiseJudge
from reward_loop.rubrics.judges.registered import register_judge
from reward_loop.rubrics.judges.service_judge import ServiceJudge
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import JudgeUsage, Prices, usage_recorded

__all__ = [
    "CriteriaJudge",
    "Criterion",
    "JudgeServices",
    "JudgeUsage",
    "LLMJudge",
    "MCPClient",
    "OpenAICompatible",
    "PairwiseJudge",
    "Prices",
    "ServiceJudge",
    "register_judge",
    "usage_recorded",
]
