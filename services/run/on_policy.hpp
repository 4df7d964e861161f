// Data that the live model makes: before the slots that such a data set names, this service has it draw from
// the weights of that moment, and shows it what the trained graph says of the samples. In every run it
// answers Generator::kId of the host between slots.
#pragma once

#include "loop/service.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"
#include "run/rank_context.hpp"
#include "run/trainer.hpp"

#include <tenon/generator.hpp>
#include <tenon/on_policy.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

class OnPolicy final : public Service {
 public:
  /// `trainer` outlives this. Throws Error(kConfig) where the data set draws from the model and this run
  /// cannot let it.
  OnPolicy(const RankContext& rank, Trainer& trainer);
  ~OnPolicy() override;
  OnPolicy(const OnPolicy&) = delete;
  OnPolicy& operator=(const OnPolicy&) = delete;

  void before_slot(std::int64_t) override { in_slot_ = true; }
  void after_slot(std::int64_t, const SlotResult&) override { in_slot_ = false; }
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;

  /// Memory on the device that the draws of a run may take; 0 where the data set does not draw.
  std::int64_t planned_bytes();
  /// The same, as lines for `tenon check`.
  std::vector<std::string> facts();

 private:
  /// A micro-batch of a slot to come.
  struct Coming {
    std::int64_t slot = 0, micro = 0, position = 0;
  };

  /// Why nothing can be drawn in this run; "" where it can.
  std::string refusal() const;
  Generator* between_slots();
  /// On the weights of this moment, with the state that the sites of the trained graph have.
  Generator& generator();
  /// Those of this replica from `slot` to the end of the period, in order.
  std::vector<Coming> coming(std::int64_t slot) const;
  void draw(std::int64_t slot);

  RankContext rank_;
  Trainer& trainer_;
  OnPolicyDataset* data_;    ///< null: the samples are not of the model
  std::int64_t period_ = 0;  ///< of the data set
  std::unique_ptr<generate::StepwiseGenerator> generator_;
  std::vector<Executor*> passes_;  ///< of the generator
  bool in_slot_ = false;
  bool draws_ = false;  ///< at the boundary that is planned
};

}  // namespace tenon::train
