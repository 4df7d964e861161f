// Out-of-line destructors of the contracts around the graph: one canonical vtable and type_info, in the core.
#include "graph/memory_budget.hpp"
#include "graph/parameter_set.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/generator.hpp>
#include <tenon/language_model.hpp>
#include <tenon/numerics.hpp>
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
#include <tenon/power.hpp>
#include <tenon/reward.hpp>
#include <tenon/row_service.hpp>
#include <tenon/simulator.hpp>
#include <tenon/stepwise.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/tier.hpp>
#include <tenon/transform.hpp>

#include <limits>

TENON_ABI_BEGIN

ValueSpec placed(InferContext& context, const Layout& layout) {
  return {part_of(layout, context.mesh().place()).extents, context.activations(), layout};
}

ParameterSet::~ParameterSet() = default;
RowTable::~RowTable() = default;
void RowTable::scan(std::span<const std::int64_t> ids, TensorView out) const {
  read(ids, out);
}
void RowTable::fill(std::span<const std::int64_t> ids, TensorView values) {
  write(ids, values);
}
void* RowTable::query(std::string_view) {
  return nullptr;
}
StoredModel::~StoredModel() = default;
StoredModels::~StoredModels() = default;
TensorWriter::~TensorWriter() = default;
Transform::~Transform() = default;
RowMemory::~RowMemory() = default;
Tier::~Tier() = default;
RowsAhead::~RowsAhead() = default;
TierCounts::~TierCounts() = default;
TableCounts::~TableCounts() = default;
DeviceRows::~DeviceRows() = default;
KeptRows::~KeptRows() = default;
RowPlaces::~RowPlaces() = default;
PositionwiseLayer::~PositionwiseLayer() = default;
StepwiseLayer::~StepwiseLayer() = default;
SequenceState::~SequenceState() = default;
Generator::~Generator() = default;
LanguageModel::~LanguageModel() = default;
OnPolicyDataset::~OnPolicyDataset() = default;
RewardParts::~RewardParts() = default;
Reward::~Reward() = default;
RowLookupHandler::~RowLookupHandler() = default;
RowService::~RowService() = default;
OperandCounter::~OperandCounter() = default;
SiteHost::~SiteHost() = default;
LinearSite::~LinearSite() = default;
Precision::~Precision() = default;
LossScaler::~LossScaler() = default;
PrecisionMetrics::~PrecisionMetrics() = default;
InferContext::~InferContext() = default;
RunContext::~RunContext() = default;
ForwardContext::~ForwardContext() = default;
BackwardContext::~BackwardContext() = default;
Layer::~Layer() = default;
LossLayer::~LossLayer() = default;
RowLookups::~RowLookups() = default;
MetricReport::~MetricReport() = default;
MetricLayer::~MetricLayer() = default;
Model::~Model() = default;

void refuse_graph(std::size_t nodes) {
  // A node's description, its layer, options and values: measured on graphs of small layers.
  constexpr std::int64_t kBytesOfNode = 8192;
  fail_config(
      fmt::format("the model wrote more than {} nodes; before any weight such a graph takes more than {}, "
                  "and this process may "
                  "use {} of this machine; lower the numbers that say how many layers it has",
                  nodes, graph::memory_text(kBytesOfNode * static_cast<std::int64_t>(nodes)),
                  graph::memory_text(usable_memory_bytes())));
}
LayerOwner::~LayerOwner() = default;
const tenon_port_v1* const* LayerOwner::ports() const {
  return nullptr;
}
LayerFactory::~LayerFactory() = default;
StateVisitor::~StateVisitor() = default;
Optimizer::~Optimizer() = default;
OptimizerBase::~OptimizerBase() = default;
OptimizerBinding::~OptimizerBinding() = default;
RowOptimizer::~RowOptimizer() = default;
Schedule::~Schedule() = default;
Dataset::~Dataset() = default;

Device::~Device() = default;
DeviceAvailability::~DeviceAvailability() = default;
MemoryWatch::~MemoryWatch() = default;
FactReport::~FactReport() = default;
ComponentFacts::~ComponentFacts() = default;
Gemm::~Gemm() = default;
Blas::~Blas() = default;
NeuralOps::~NeuralOps() = default;
AttentionKernel::~AttentionKernel() = default;
CachedAttentionKernel::~CachedAttentionKernel() = default;
Attention::~Attention() = default;
std::unique_ptr<CachedAttentionKernel> Attention::prepare_cached(const CachedAttentionSpec&) {
  fail_config(
      "this device has no attention over kept keys, which generation needs; generate on another device");
}
EmbeddingOps::~EmbeddingOps() = default;
Elementwise::~Elementwise() = default;
ReduceOps::~ReduceOps() = default;
WindowOps::~WindowOps() = default;
NormalisationOps::~NormalisationOps() = default;
PartNormOps::~PartNormOps() = default;
FormulaOps::~FormulaOps() = default;
StridedCopyOps::~StridedCopyOps() = default;
Convolution::~Convolution() = default;
Convolutions::~Convolutions() = default;
SparseAxisOp::~SparseAxisOp() = default;
SparseAxisOps::~SparseAxisOps() = default;
FftKernel::~FftKernel() = default;
Fft::~Fft() = default;
BatchedComplexGemm::~BatchedComplexGemm() = default;
BatchedComplexGemms::~BatchedComplexGemms() = default;
QuantizeKernel::~QuantizeKernel() = default;
QuantOps::~QuantOps() = default;
ScaledProduct::~ScaledProduct() = default;
ScaledProducts::~ScaledProducts() = default;
NumericsSink::~NumericsSink() = default;
NumericsObserver::~NumericsObserver() = default;

OptimizerBase::OptimizerBase(const Options& options) : lr_(options.real("lr")) {}
double OptimizerBase::base_lr() const {
  return lr_;
}
Shape state_shape(const StateSlot& slot, const Shape& weights) {
  Shape shape = weights;
  for (int d = 0; d < shape.rank(); ++d)
    if ((slot.dimensions >> d & 1) == 0) shape[d] = 1;
  return shape;
}

std::span<const StateSlot> OptimizerBase::slots() const {
  return {};
}
bool OptimizerBase::elementwise() const {
  return true;
}
void OptimizerBase::state(StateVisitor&) {}
void* OptimizerBase::query(std::string_view) {
  return nullptr;
}

TensorView flat_reals(TensorView view) {
  view = graph::as_reals(view);
  view.shape = Shape{view.elements()};
  return view;
}

void* Device::require(std::string_view interface_id) {
  void* family = query(interface_id);
  if (family == nullptr) {
    fail_config("this device does not offer the operator family '" + std::string(interface_id) +
                "' that the model needs; choose another [device] type (see: tenon inspect)");
  }
  return family;
}

TaskWatch::~TaskWatch() = default;
Simulator::~Simulator() = default;
SimulatorBase::~SimulatorBase() = default;

std::span<const SimulatedField> SimulatorBase::shared() const {
  return {};
}
void SimulatorBase::share(std::uint64_t, std::span<const TensorView>) {}
void* SimulatorBase::query(std::string_view) {
  return nullptr;
}

PowerPolicy::~PowerPolicy() = default;
PowerSource::~PowerSource() = default;
PowerActuator::~PowerActuator() = default;
Power::~Power() = default;
PowerPolicyBase::~PowerPolicyBase() = default;
void PowerPolicyBase::account(const std::function<void(std::string_view, double)>&) const {}
void* PowerPolicyBase::query(std::string_view interface_id) {
  return interface_id == PowerPolicy::kId ? static_cast<PowerPolicy*>(this) : nullptr;
}
PowerSourceBase::~PowerSourceBase() = default;
bool PowerSourceBase::every_rank() const {
  return false;
}
double PowerSourceBase::joules() {
  return std::numeric_limits<double>::quiet_NaN();
}
void* PowerSourceBase::query(std::string_view interface_id) {
  return interface_id == PowerSource::kId ? static_cast<PowerSource*>(this) : nullptr;
}

TENON_ABI_END
