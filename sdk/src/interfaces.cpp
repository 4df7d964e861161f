// Homes of the abstract classes of <tenon/sdk/...>: their virtual tables and type information live in
// libtenon_core, so that every plugin shares one copy.
#include <tenon/sdk/ops/background.hpp>
#include <tenon/sdk/ops/divergence.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/multiply.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/quantizer.hpp>

TENON_ABI_BEGIN

BackgroundWork::~BackgroundWork() = default;
DivergenceOps::~DivergenceOps() = default;
StateDistanceOps::~StateDistanceOps() = default;
InteractionOps::~InteractionOps() = default;
SignOps::~SignOps() = default;
CausalConvKernel::~CausalConvKernel() = default;
CausalConvs::~CausalConvs() = default;
SsdKernel::~SsdKernel() = default;
Ssd::~Ssd() = default;
GatedNormKernel::~GatedNormKernel() = default;
GatedNorms::~GatedNorms() = default;
MorKernel::~MorKernel() = default;
MorOps::~MorOps() = default;
MultiplyOps::~MultiplyOps() = default;
TableRowOps::~TableRowOps() = default;

TokenizedText::~TokenizedText() = default;
ConversationText::~ConversationText() = default;
ModelNames::~ModelNames() = default;
ModelImporter::~ModelImporter() = default;
Quantizer::~Quantizer() = default;

TENON_ABI_END
