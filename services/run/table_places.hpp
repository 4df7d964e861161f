// Where the row tables of a rank live: the places of [tables], first match first, or those that a plan gave.
#pragma once

#include "loop/parts.hpp"
#include "run/table_planner.hpp"

#include <tenon/tier.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

class TablePlaces final : public RowPlaces {
 public:
  /// `run`, `resumes`: see RowMemorySpec. Settings and parts outlive this.
  TablePlaces(const config::CoreSettings& settings, Parts& parts, std::string run, bool resumes, int rank)
      : settings_(settings), parts_(parts), run_(std::move(run)), resumes_(resumes), rank_(rank) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override;
  /// Host memory that these rows will take.
  std::int64_t host_bytes(const RowMemorySpec& spec) const;
  /// For tables that no place matches. It outlives this.
  void use(const TablePlanner& planner) { planner_ = &planner; }
  /// Places that no table of the model comes to.
  std::vector<std::string> warnings(std::span<const ParameterInfo> tables) const;

 private:
  RowMemorySpec completed(RowMemorySpec spec) const;
  /// Null: the core's own memory.
  const Part<Tier>* tier_of(const RowMemorySpec& spec) const;

  const config::CoreSettings& settings_;
  Parts& parts_;
  const TablePlanner* planner_ = nullptr;
  std::string run_;
  bool resumes_;
  int rank_;
};

}  // namespace tenon::train
