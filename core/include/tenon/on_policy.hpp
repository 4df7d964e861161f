// Ability of data sets ("tenon.dataset.on_policy/1"): samples that the model itself makes, as in
// reinforcement learning. Before a slot the data set is given the live model, and what it reads in that slot
// comes from there. No run asks for it yet.
#pragma once

#include <tenon/dataset.hpp>

#include <cstdint>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// The model that a run trains, in evaluation mode, with the weights before the slot. Valid during the call.
class LiveModel {
 public:
  virtual ~LiveModel();
  /// Runs it on a batch, one tensor per data field, in host memory: [batch, ...].
  virtual void forward(std::span<const TensorView> fields) = 0;
  /// A value of the last forward, in host memory: "node" or "node:1"; empty where there is none. Valid until
  /// the next forward.
  virtual TensorView value(std::string_view name) = 0;
};

class OnPolicyDataset {
 public:
  static constexpr const char* kId = "tenon.dataset.on_policy/1";
  virtual ~OnPolicyDataset();
  /// Makes the samples [first, first + count) of the train split, which are all that read() is asked for
  /// until the next call. A function of (seed_order of open(), slot, first, the weights) alone: draws are
  /// keyed by them, so a slot that is run again, on any number of ranks, has the same samples. Called before
  /// the slot on the thread that runs it; read() may not run at the same time.
  virtual void make(LiveModel& model, std::int64_t slot, std::int64_t first, std::int64_t count) = 0;
};

TENON_ABI_END
