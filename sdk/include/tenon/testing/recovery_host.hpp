// For tests of recovery policies: the core of a run with one rank, whose values the test sets.
#pragma once

#include <tenon/recovery.hpp>
#include <tenon/transport.hpp>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {

class LoneRecoveryHost final : public RecoveryHost {
 public:
  const RecoveryContext& run() const override { return context; }
  void sum(std::span<double>) override {}
  std::vector<std::string> gather(const std::string& text) override { return {text}; }
  std::unique_ptr<Communicator> open(std::string_view) override { return nullptr; }
  std::string capture() override { return state; }
  void restore(const std::string& captured) override { state = captured; }
  std::shared_ptr<void>& kept(std::string_view name) override { return memory[std::string(name)]; }
  void reset_optimizer() override { ++optimizer_resets; }
  void skip_batches(std::int64_t batches) override { skipped_batches += batches; }
  void report(std::string_view name, double value) override { reported[std::string(name)] = value; }

  RecoveryContext context;
  std::string state;  ///< returned by capture
  std::map<std::string, std::shared_ptr<void>> memory;
  std::map<std::string, double> reported;
  std::int64_t optimizer_resets = 0, skipped_batches = 0;
};

}  // namespace tenon::testing
