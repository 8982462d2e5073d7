"""Between messages and tokens: what a model's chat template writes, and what its answers say."""

from reward_loop.rinker.rendering.completers import MessageCompleter as MessageCompleter
from reward_loop.rinker.rendering.completers import StopCondition as StopCondition
from reward_loop.rinker.rendering.completers import TinkerMessageCompleter as TinkerMessageCompleter
from reward_loop.rinker.rendering.completers import TinkerTokenCompleter as TinkerTokenCompleter
from reward_loop.rinker.rendering.completers import TokenCompleter as TokenCompleter
from reward_loop.rinker.rendering.completers import TokensWithLogprobs as TokensWithLogprobs
from reward_loop.rinker.rendering.llama import LlamaRenderer as LlamaRenderer
from reward_loop.rinker.rendering.message import Message as Message
from reward_loop.rinker.rendering.message import ParseTermination as ParseTermination
from reward_loop.rinker.rendering.message import TrainOnWhat as TrainOnWhat
from reward_loop.rinker.rendering.qwen import Qwen3Renderer as Qwen3Renderer
from reward_loop.rinker.rendering.qwen import QwenRenderer as QwenRenderer
from reward_loop.rinker.rendering.registry import get_renderer as get_renderer
from reward_loop.rinker.rendering.registry import register_renderer as register_renderer
from reward_loop.rinker.rendering.registry import renderer_for as renderer_for
from reward_loop.rinker.rendering.registry import renderer_names as renderer_names
from reward_loop.rinker.rendering.renderer import Renderer as Renderer
