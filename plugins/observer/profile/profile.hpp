// Observer `profile` (contract observer/1): time per layer and phase of a slot, from the core's spans.
// Written as profile.json and profile.txt into the run folder, and shown at the end. `tenon train --profile`
// adds it.
#pragma once

#include "account.hpp"

#include <tenon/files.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <memory>
#include <string>

namespace tenon::profile {

class Profile final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("skip", "2")
          .at_least(0)
          .in_unit("slots")
          .doc_text("slots at the beginning that do not count: caches and kernels are cold there"),
      option::integer("rows", "20")
          .between(1, 2147483647)
          .doc_text("layers in the table; the JSON file has all"),
      option::boolean("print", "true").doc_text("show the table on standard error at the end"),
  };
  static constexpr ComponentInfo kInfo{.id = "profile",
                                       .summary = "time per layer and phase, GFLOP/s, GB/s",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Profile(const Options& options);
  Profile(std::int64_t skip, std::size_t rows, bool print, std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric&) override {}
  void on_span(const Span& span) override { account_.add(span); }
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view interface_id) override {
    return interface_id == kSpanObserverId ? this : nullptr;
  }

 private:
  std::int64_t skip_;
  std::size_t rows_;
  bool print_;
  std::unique_ptr<FileSystem> files_;
  Account account_;
  std::string folder_;
  std::int64_t seen_ = 0;
};

}  // namespace tenon::profile
