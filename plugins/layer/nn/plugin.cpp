// The plugin `tenon.nn`: layers of perceptrons, transformers and convolutional networks.
#include "add_losses.hpp"
#include "attention.hpp"
#include "distillation.hpp"
#include "embedding.hpp"
#include "gate.hpp"
#include "head_cross_entropy.hpp"
#include "head_log_probs.hpp"
#include "hidden_match.hpp"
#include "images.hpp"
#include "linear.hpp"
#include "losses.hpp"
#include "norms.hpp"
#include "pointwise.hpp"
#include "policy_loss.hpp"
#include "rotary.hpp"
#include "weighted_sum.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.nn",
                               .version = "0.1.0",
                               .summary = "layers of perceptrons, transformers and convolutional networks"},
             tenon::nn::Linear, tenon::nn::Embedding, tenon::nn::Positions, tenon::nn::LayerNorm,
             tenon::nn::Gelu, tenon::nn::Relu, tenon::nn::Dropout, tenon::nn::Residual,
             tenon::nn::SelfAttention, tenon::nn::HeadCrossEntropy, tenon::nn::SoftmaxCrossEntropy,
             tenon::nn::Flatten, tenon::nn::Conv2d, tenon::nn::MaxPool2d, tenon::nn::AveragePool2d,
             tenon::nn::BatchNorm, tenon::nn::RmsNorm, tenon::nn::Silu, tenon::nn::SquaredRelu,
             tenon::nn::Mse, tenon::nn::Accuracy, tenon::nn::Rotary, tenon::nn::Gate, tenon::nn::HeadLogProbs,
             tenon::nn::WeightedSum, tenon::nn::AddLosses, tenon::nn::PolicyLoss, tenon::nn::Distillation,
             tenon::nn::HiddenMatch)
