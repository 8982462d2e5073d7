"""What goes in and out of the clients, under the names of the Tinker SDK."""

from reward_loop.rinker.types.adam_params import AdamParams as AdamParams
from reward_loop.rinker.types.checkpoint import Checkpoint as Checkpoint
from reward_loop.rinker.types.checkpoint import CheckpointsListResponse as CheckpointsListResponse
from reward_loop.rinker.types.checkpoint import Cursor as Cursor
from reward_loop.rinker.types.checkpoint import TrainingRun as TrainingRun
from reward_loop.rinker.types.checkpoint import TrainingRunsResponse as TrainingRunsResponse
from reward_loop.rinker.types.checkpoint import WeightsInfoResponse as WeightsInfoResponse
from reward_loop.rinker.types.datum import Datum as Datum
from reward_loop.rinker.types.info import GetInfoResponse as GetInfoResponse
from reward_loop.rinker.types.info import GetServerCapabilitiesResponse as GetServerCapabilitiesResponse
from reward_loop.rinker.types.info import ModelData as ModelData
from reward_loop.rinker.types.info import SupportedModel as SupportedModel
from reward_loop.rinker.types.model_input import EncodedTextChunk as EncodedTextChunk
from reward_loop.rinker.types.model_input import ModelInput as ModelInput
from reward_loop.rinker.types.model_spec import LoraConfig as LoraConfig
from reward_loop.rinker.types.model_spec import ModelSpec as ModelSpec
from reward_loop.rinker.types.outputs import ForwardBackwardOutput as ForwardBackwardOutput
from reward_loop.rinker.types.outputs import LoadWeightsResponse as LoadWeightsResponse
from reward_loop.rinker.types.outputs import OptimStepResponse as OptimStepResponse
from reward_loop.rinker.types.outputs import SaveWeightsResponse as SaveWeightsResponse
from reward_loop.rinker.types.sample_response import SampledSequence as SampledSequence
from reward_loop.rinker.types.sample_response import SampleResponse as SampleResponse
from reward_loop.rinker.types.sampling_params import SamplingParams as SamplingParams
from reward_loop.rinker.types.tensor_data import TensorData as TensorData
