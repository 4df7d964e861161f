// The ABI probe: one exported function per public type, taking it by pointer, so that its debug information
// holds the layout, the virtual functions and the enumerators of everything that crosses between program and
// plugin. Compiled by scripts/abi_gate with -g and all types written out; never linked into anything and
// never installed.
//
// A type that a public header gains is added here; the gate says so when one is missing.

#include <tenon/plugin_abi.h>
#include <tenon/checkpoint.hpp>
#include <tenon/clock.hpp>
#include <tenon/config.hpp>
#include <tenon/control.hpp>
#include <tenon/dataset.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/files.hpp>
#include <tenon/generator.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/language_model.hpp>
#include <tenon/layer.hpp>
#include <tenon/model.hpp>
#include <tenon/numerics.hpp>
#include <tenon/observer.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/options.hpp>
#include <tenon/parameter.hpp>
#include <tenon/phases.hpp>
#include <tenon/plugin.hpp>
#include <tenon/portable_math.hpp>
#include <tenon/power.hpp>
#include <tenon/precision.hpp>
#include <tenon/random.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/reward.hpp>
#include <tenon/row_service.hpp>
#include <tenon/runtime.hpp>
#include <tenon/save_places.hpp>
#include <tenon/sdk/answer_text.hpp>
#include <tenon/sdk/bf16.hpp>
#include <tenon/sdk/block_exchange.hpp>
#include <tenon/sdk/byte_tokenizer.hpp>
#include <tenon/sdk/communicator_arguments.hpp>
#include <tenon/sdk/gradient_mean.hpp>
#include <tenon/sdk/gradient_sum.hpp>
#include <tenon/sdk/imported_settings.hpp>
#include <tenon/sdk/indexed_dataset.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/sdk/linear_map.hpp>
#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/ops/background.hpp>
#include <tenon/sdk/ops/divergence.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/multiply.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/outer_update.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/packed_files.hpp>
#include <tenon/sdk/permutation.hpp>
#include <tenon/sdk/plain_precision.hpp>
#include <tenon/sdk/prompts.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/sdk/reuse_distance.hpp>
#include <tenon/sdk/row_update.hpp>
#include <tenon/sdk/simulation.hpp>
#include <tenon/sdk/site_selection.hpp>
#include <tenon/sdk/text_documents.hpp>
#include <tenon/sdk/token_files.hpp>
#include <tenon/sdk/traffic.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>
#include <tenon/shared_objects.hpp>
#include <tenon/simulator.hpp>
#include <tenon/site.hpp>
#include <tenon/site_products.hpp>
#include <tenon/state.hpp>
#include <tenon/stepwise.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>
#include <tenon/tensor.hpp>
#include <tenon/tier.hpp>
#include <tenon/tokenizer.hpp>
#include <tenon/transform.hpp>
#include <tenon/transport.hpp>

// One line per type, so that the function name identifies what differs.
#define C_TYPE(type) \
  extern "C" void tenon_abi_##type(type*) {}
#define TYPE(type) \
  extern "C" void tenon_abi_##type(tenon::type*) {}
// Templates are pinned through one instance each.
#define INSTANCE(type, ...) \
  extern "C" void tenon_abi_##type(tenon::type<__VA_ARGS__>*) {}

// <tenon/plugin_abi.h>
C_TYPE(tenon_error)
C_TYPE(tenon_host_v1)
C_TYPE(tenon_option_type)
C_TYPE(tenon_option_v1)
C_TYPE(tenon_maturity)
C_TYPE(tenon_port_v1)
C_TYPE(tenon_port_flags)
C_TYPE(tenon_component_v1)
C_TYPE(tenon_plugin_v1_t)
// The flags of options and of capabilities have no name of their own.
extern "C" void tenon_abi_option_flags(decltype(TENON_OPTION_REQUIRED)*) {}
extern "C" void tenon_abi_capabilities(decltype(TENON_CAP_HOGWILD)*) {}

// <tenon/checkpoint.hpp>
TYPE(SaveItem)
TYPE(MetaBlock)
TYPE(SaveRequest)
TYPE(SaveStatus)
TYPE(SaveResult)
TYPE(SaveExchange)
TYPE(SoloExchange)
TYPE(StoreOptions)
TYPE(RejectedGeneration)
TYPE(RestorePoint)
TYPE(TensorSpec)
TYPE(EncodedPart)
TYPE(CheckpointReader)
TYPE(GenerationAge)
TYPE(CheckpointStore)
TYPE(AsyncSaver)
TYPE(StateHasher)
TYPE(PartDecoder)

// <tenon/clock.hpp>
TYPE(Clock)
TYPE(WaitDeadline)
TYPE(ClockEvent)

// <tenon/config.hpp>
TYPE(Origin)
TYPE(Member)
TYPE(Value)
TYPE(Config)
TYPE(Difference)
TYPE(ComponentSchema)
TYPE(ComponentCatalog)
TYPE(ResolvedOptions)
TYPE(InnerComponent)
TYPE(OptionRequest)
TYPE(Resolution)
TYPE(OptionList)

// <tenon/control.hpp>
TYPE(ControlAction)
TYPE(ControlPlane)

// <tenon/dataset.hpp>
TYPE(Split)
TYPE(DataField)
TYPE(DataAttribute)
TYPE(DataSource)
TYPE(DataInfo)
TYPE(BatchRequest)
TYPE(Dataset)

// <tenon/device.hpp>
TYPE(DeviceSpec)
TYPE(Device)
TYPE(DeviceAvailability)
TYPE(FactReport)
TYPE(ComponentFacts)
TYPE(DeviceStreams)
TYPE(DeviceEvents)
TYPE(HostStage)

// <tenon/error.hpp>
TYPE(ErrorKind)
TYPE(Error)
TYPE(DeadlineError)
TYPE(CancelledError)

// <tenon/executor.hpp>
TYPE(LayerOwner)
TYPE(LayerFactory)
TYPE(ExecutorSpec)
TYPE(RunSpec)
TYPE(LossValue)
TYPE(PlanLine)
TYPE(SequenceState)
TYPE(StepRun)
TYPE(Executor)
TYPE(SetContents)
TYPE(ParameterReady)
TYPE(OutputProbe)
TYPE(MemoryWatch)

// <tenon/files.hpp>
TYPE(FileError)
TYPE(WritableFile)
TYPE(ReadableFile)
TYPE(DirectoryEntry)
TYPE(FileSystem)

// <tenon/generator.hpp>
TYPE(ThinkingBudget)
TYPE(GenerationSpec)
TYPE(Prompt)
TYPE(GenerationEnd)
TYPE(Generated)
TYPE(Generator)

// <tenon/host.hpp>
TYPE(LogLevel)
TYPE(Actor)
TYPE(Host)

// <tenon/identities.hpp>
TYPE(Identity)
TYPE(ComponentIdentities)
struct StatesOne {
  static constexpr tenon::Identity kIdentities[] = {{}};
};
INSTANCE(IdentitiesOf, StatesOne)

// <tenon/language_model.hpp>
TYPE(LanguageGraph)
TYPE(LanguageModel)

// <tenon/layer.hpp>
TYPE(ValueSpec)
TYPE(ParameterRef)
TYPE(SavedRef)
TYPE(WorkspaceRef)
TYPE(SiteRef)
TYPE(SiteSpec)
TYPE(InferContext)
TYPE(RunContext)
TYPE(ForwardContext)
TYPE(GradientSink)
TYPE(BackwardContext)
TYPE(Layer)
TYPE(LossLayer)
TYPE(RowLookups)
TYPE(MetricReport)
TYPE(MetricLayer)

// <tenon/model.hpp>
TYPE(NamedOption)
TYPE(NodeSpec)
INSTANCE(NodeAllocator, tenon::NodeSpec)
TYPE(NodeList)
TYPE(GraphSpec)
TYPE(Model)
TYPE(OptionValue)

// <tenon/numerics.hpp>
TYPE(OperandNumerics)
TYPE(NumericsSink)
TYPE(NumericsObserver)

// <tenon/observer.hpp>
TYPE(RunInfo)
TYPE(Metric)
TYPE(SlotRecord)
TYPE(Span)
TYPE(SpanSink)
TYPE(MetricSink)
TYPE(Observer)
TYPE(TensorRequest)
TYPE(ObservedParameter)
TYPE(ObservedOutput)
TYPE(TensorObserver)
TYPE(RowObserver)

// <tenon/on_policy.hpp>
TYPE(OnPolicyDataset)

// <tenon/ops/attention.hpp>
TYPE(AttentionSpec)
TYPE(AttentionMasks)
TYPE(CachedAttentionSpec)
TYPE(CachedRows)
TYPE(CachedAttentionKernel)
TYPE(AttentionKernel)
TYPE(Attention)

// <tenon/ops/convolution.hpp>
TYPE(WindowSpec)
TYPE(WindowOps)
TYPE(ConvolutionSpec)
TYPE(Convolution)
TYPE(Convolutions)

// <tenon/ops/copy.hpp>
TYPE(StridedCopyOps)
TYPE(EmbeddingOps)

// <tenon/ops/dense.hpp>
TYPE(Epilogue)
TYPE(GemmSpec)
TYPE(Gemm)
TYPE(Blas)

// <tenon/ops/elementwise.hpp>
TYPE(Elementwise)

// <tenon/ops/formula.hpp>
TYPE(FormulaOp)
TYPE(FormulaStep)
TYPE(Formula)
TYPE(FormulaOps)

// <tenon/ops/norm.hpp>
TYPE(NeuralOps)
TYPE(BatchNormSpec)
TYPE(NormalisationOps)
TYPE(PartNormSpec)
TYPE(PartNormOps)

// <tenon/ops/quant.hpp>
TYPE(ElementFormat)
TYPE(BlockScale)
TYPE(PowerRule)
TYPE(RoundingMode)
TYPE(QuantizeSpec)
TYPE(QuantizeDraws)
TYPE(QuantizeOutput)
TYPE(QuantizeStats)
TYPE(QuantizeKernel)
TYPE(ProductScales)
TYPE(QuantOps)
TYPE(ScaledOperand)
TYPE(ScaledProductSpec)
TYPE(ScaledMatrix)
TYPE(ScaledProduct)
TYPE(ScaledProducts)

// <tenon/ops/reduce.hpp>
TYPE(ReduceOps)
TYPE(LineTerm)
TYPE(SparseAxisSpec)
TYPE(SparseAxisOp)
TYPE(SparseAxisOps)

// <tenon/ops/spectral.hpp>
TYPE(FftMap)
TYPE(FftSpec)
TYPE(FftKernel)
TYPE(Fft)
TYPE(BatchedComplexGemmSpec)
TYPE(BatchedComplexGemm)
TYPE(BatchedComplexGemms)

// <tenon/optimizer.hpp>
TYPE(StateSlot)
TYPE(UpdateContext)
TYPE(ParameterSlice)
TYPE(Optimizer)
TYPE(OptimizerBase)
TYPE(OptimizerSetup)
TYPE(OptimizerBinding)
TYPE(RowStateSlot)
TYPE(RowOptimizer)
TYPE(SchedulePoint)
TYPE(Schedule)

// <tenon/options.hpp>
TYPE(Options)
INSTANCE(Choices, int, 1)
TYPE(OptionSpec)
namespace tenon {
using option::detail::OptionPointers;
}
INSTANCE(OptionPointers, 1)

// <tenon/parameter.hpp>
TYPE(RowTable)
TYPE(Role)
TYPE(Initializer)
TYPE(ParameterSpec)
TYPE(ParameterInfo)
TYPE(ParameterSet)
TYPE(RowGradient)

// <tenon/plugin.hpp>
TYPE(PortSpec)
TYPE(ComponentInfo)
INSTANCE(StaticText, 64)
TYPE(PluginHooks)
TYPE(PluginInfo)

// <tenon/precision.hpp>
TYPE(BackwardStats)
TYPE(Precision)
TYPE(LossScaler)
TYPE(PrecisionMetrics)

// <tenon/portable_math.hpp>
TYPE(TurnPoint)

// <tenon/random.hpp>
TYPE(RandomKey)

// <tenon/recovery.hpp>
TYPE(FailureDomains)
TYPE(ClusterCosts)
TYPE(FailureEvent)
TYPE(SaveMoment)
TYPE(RowSelection)
TYPE(SavePlan)
TYPE(FailureAction)
TYPE(FailureDecision)
TYPE(RestoredShard)
TYPE(RecoveryContext)
TYPE(RecoveryHost)
TYPE(RecoveryStart)
TYPE(SlotStart)
TYPE(SlotOutcome)
TYPE(BoundaryPlan)
TYPE(Recovery)
TYPE(RecoveryBase)
TYPE(RecoveryDecorator)
TYPE(SaveSelector)
TYPE(SavePlace)
TYPE(SavePlaces)
TYPE(RowCodec)

// <tenon/registry.hpp>
TYPE(ComponentRef)
TYPE(ComponentHandle)
INSTANCE(Component, tenon::Optimizer)
TYPE(PluginStatus)
TYPE(Registry)

// <tenon/reward.hpp>
TYPE(RewardSample)
TYPE(RewardParts)
TYPE(Reward)

// <tenon/row_service.hpp>
TYPE(RowLookupHandler)
TYPE(RowAsk)
TYPE(RowService)

// <tenon/runtime.hpp>
TYPE(ProcessPlace)
TYPE(TrainRequest)
TYPE(RankTime)
TYPE(Distribution)
TYPE(RunResult)
TYPE(Runtime)

// <tenon/sdk/answer_text.hpp>
TYPE(AnswerText)

// <tenon/sdk/bf16.hpp>
TYPE(Bf16)

// <tenon/sdk/block_exchange.hpp>
TYPE(Block)
TYPE(ExchangeSpec)
TYPE(Direction)
TYPE(Deposit)
TYPE(Flight)
TYPE(BlockExchange)

// <tenon/sdk/byte_tokenizer.hpp>
TYPE(ByteTokenizer)

// <tenon/sdk/communicator_arguments.hpp>
TYPE(CommunicatorArguments)

// <tenon/sdk/gradient_mean.hpp>
TYPE(GradientMean)

// <tenon/sdk/gradient_sum.hpp>
TYPE(GradientSum)

// <tenon/sdk/imported_settings.hpp>
TYPE(ImportedSettings)

// <tenon/sdk/indexed_dataset.hpp>
TYPE(SampleOrder)
TYPE(IndexedContent)
TYPE(IndexedDataset)

// <tenon/sdk/json.hpp>
TYPE(JsonTree)

// <tenon/sdk/linear_map.hpp>
TYPE(IndexMap)
TYPE(Sliding)
TYPE(Interpolation)
TYPE(DimWindow)
TYPE(LinearMap)
TYPE(MoveSpec)
TYPE(Primitive)

// <tenon/sdk/npy.hpp>
TYPE(NpyHeader)
TYPE(NpyFile)

// <tenon/sdk/ops/background.hpp>
TYPE(BackgroundWork)

// <tenon/sdk/ops/divergence.hpp>
TYPE(Divergence)
TYPE(DivergenceSpec)
TYPE(DivergenceOps)
TYPE(StateDistance)
TYPE(StateDistanceOps)

// <tenon/sdk/ops/interaction.hpp>
TYPE(Interaction)
TYPE(InteractionOps)

// <tenon/sdk/ops/mor.hpp>
TYPE(MorStrategy)
TYPE(MorMode)
TYPE(MorChoice)
TYPE(MorSpec)
TYPE(MorDecision)
TYPE(MorKernel)
TYPE(MorOps)

// <tenon/sdk/ops/multiply.hpp>
TYPE(MultiplyOps)

// <tenon/sdk/ops/signs.hpp>
TYPE(SignPlace)
TYPE(SignOps)

// <tenon/sdk/ops/ssd.hpp>
TYPE(ColumnRun)
TYPE(CausalConvSpec)
TYPE(CausalConvKernel)
TYPE(CausalConvs)
TYPE(SsdSpec)
TYPE(SsdInputs)
TYPE(SsdGradients)
TYPE(SsdKernel)
TYPE(Ssd)
TYPE(GatedNormSpec)
TYPE(GatedNormKernel)
TYPE(GatedNorms)

// <tenon/sdk/ops/table_rows.hpp>
TYPE(TableRowOps)

// <tenon/sdk/outer_update.hpp>
TYPE(OuterRule)
TYPE(OuterUpdate)

// <tenon/sdk/outside_training.hpp>
TYPE(TokenizedText)
TYPE(ConversationText)
TYPE(RowRange)
TYPE(NameRule)
TYPE(ExportedFile)
TYPE(NamePlan)
TYPE(ModelNames)
TYPE(ModelImporter)

// <tenon/sdk/packed_files.hpp>
TYPE(FileIdentity)
TYPE(PackedFile)

// <tenon/sdk/permutation.hpp>
TYPE(Permutation)

// <tenon/sdk/plain_precision.hpp>
TYPE(PlainPrecision)

// <tenon/sdk/prompts.hpp>
TYPE(PromptLine)
TYPE(PromptForm)
TYPE(PromptEncoder)

// <tenon/sdk/quantizer.hpp>
TYPE(QuantizeRequest)
TYPE(QuantizeShape)
TYPE(QuantizeReport)
TYPE(Quantizer)

// <tenon/sdk/reuse_distance.hpp>
TYPE(ReuseDistances)

// <tenon/sdk/row_update.hpp>
TYPE(RowBlock)
TYPE(DeviceRowBlock)
TYPE(DeviceRowRoom)

// <tenon/sdk/simulation.hpp>
TYPE(FailedTask)
TYPE(SimulationManifest)

// <tenon/sdk/site_selection.hpp>
TYPE(SiteSelection)

// <tenon/sdk/text_documents.hpp>
TYPE(DocumentForm)
TYPE(DocumentRule)
TYPE(TextDocument)
TYPE(DocumentCounts)

// <tenon/sdk/token_files.hpp>
TYPE(DocumentIndex)
TYPE(TokenFileWriter)

// <tenon/sdk/traffic.hpp>
TYPE(Traffic)
TYPE(LinkTime)

// <tenon/sdk/update_rule.hpp>
INSTANCE(FormulaElement, float)
TYPE(RuleEvaluator)

// <tenon/sdk/update_rules.hpp>
TYPE(AdamWStep)
TYPE(AdamWRule)
TYPE(SgdStep)
INSTANCE(SgdRule, true)
TYPE(AdagradRule)
TYPE(RowwiseAdagradRule)
TYPE(LambDirection)
TYPE(LambMomentsRule)
TYPE(LambWeightsRule)
INSTANCE(RuleList, tenon::AdamWRule)

// <tenon/phases.hpp>
TYPE(Phase)
TYPE(PhaseObserver)

// <tenon/power.hpp>
TYPE(PowerSetup)
TYPE(PowerSample)
TYPE(PowerOutput)
TYPE(PowerPolicy)
TYPE(PowerOrigin)
TYPE(PowerUnit)
TYPE(PowerSourceInfo)
TYPE(PowerSource)
TYPE(PowerPlace)
TYPE(PowerActuator)
TYPE(Power)
TYPE(PowerPolicyBase)
TYPE(PowerSourceBase)

// <tenon/shared_objects.hpp>
TYPE(SharedObject)
TYPE(SharedObjects)

// <tenon/simulator.hpp>
TYPE(SimulatedField)
TYPE(SimulationTask)
TYPE(TaskWatch)
TYPE(Simulator)
TYPE(SimulatorBase)

// <tenon/site_products.hpp>
TYPE(SiteOperand)
TYPE(SiteProduct)
TYPE(SiteProducts)

// <tenon/site.hpp>
TYPE(SiteInfo)
TYPE(SiteMemory)
TYPE(SiteCall)
TYPE(OperandCounter)
TYPE(SiteHost)
TYPE(LinearSite)

// <tenon/state.hpp>
TYPE(StateVisitor)

// <tenon/stepwise.hpp>
TYPE(PositionwiseLayer)
TYPE(Steps)
TYPE(StepwiseLayer)

// <tenon/stored_model.hpp>
TYPE(StoredTensor)
TYPE(ModelDescription)
TYPE(StoredModel)
TYPE(StoredModels)

// <tenon/sync_extra.hpp>
TYPE(BucketSizes)
TYPE(MeanPart)
TYPE(MeanReducer)
TYPE(MeanUser)
TYPE(ServerNode)
TYPE(SyncServer)

// <tenon/sync.hpp>
TYPE(Slot)
TYPE(SlotKind)
TYPE(SlotPlan)
TYPE(StepOutcome)
TYPE(GradientGroup)
TYPE(Bucket)
TYPE(Replica)
TYPE(Sync)
TYPE(SyncBase)
TYPE(SyncDecorator)

// <tenon/tensor.hpp>
TYPE(DType)
TYPE(Shape)
TYPE(MemorySpace)
TYPE(TensorView)
TYPE(DimSharding)
TYPE(MeshPlace)
TYPE(ElementRange)
TYPE(Box)
TYPE(Layout)

// <tenon/tier.hpp>
TYPE(KeptRows)
TYPE(RowMemorySpec)
TYPE(RowMemory)
TYPE(Tier)
TYPE(RowsAhead)
TYPE(TierCount)
TYPE(TierCounts)
TYPE(TableCounts)
TYPE(DeviceRows)
TYPE(RowPlaces)
TYPE(HostPages)

// <tenon/tokenizer.hpp>
TYPE(SpecialToken)
TYPE(Tokenizer)
TYPE(TokenizerFile)
TYPE(TokenizerTarget)
TYPE(TokenizerTraining)

// <tenon/transform.hpp>
TYPE(TransformedModel)
TYPE(TensorWriter)
TYPE(Transform)

// <tenon/transport.hpp>
TYPE(ReduceOp)
TYPE(Purpose)
TYPE(LinkCounts)
TYPE(Request)
TYPE(GroupSpec)
TYPE(Communicator)
TYPE(LinkSpec)
TYPE(Rendezvous)
TYPE(NotRepeatable)
TYPE(WorldSpec)
TYPE(Transport)
TYPE(CommunicatorDecorator)
TYPE(Mesh)
TYPE(DeviceTransport)
