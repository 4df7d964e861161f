// The plugin `tenon.nn`: layers of multilayer perceptrons and transformers.
#include "attention.hpp"
#include "dropout.hpp"
#include "embedding.hpp"
#include "flatten.hpp"
#include "gelu.hpp"
#include "head_cross_entropy.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "positions.hpp"
#include "relu.hpp"
#include "residual.hpp"
#include "softmax_cross_entropy.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.nn",
                               .version = "0.1.0",
                               .summary = "layers of perceptrons and transformers"},
             tenon::nn::Linear, tenon::nn::Embedding, tenon::nn::Positions, tenon::nn::LayerNorm,
             tenon::nn::Gelu, tenon::nn::Relu, tenon::nn::Dropout, tenon::nn::Residual,
             tenon::nn::SelfAttention, tenon::nn::HeadCrossEntropy, tenon::nn::SoftmaxCrossEntropy,
             tenon::nn::Flatten)
