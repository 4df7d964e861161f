// Observer `trace` (contract observer/1): trace.rank<r>.json in Chrome's trace format, one file per rank, one
// lane per track. The file is an array that viewers also read without its end, so a killed run leaves a
// usable file.
#pragma once

#include "lanes.hpp"

#include <tenon/files.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <memory>
#include <string>

namespace tenon::trace {

class Trace final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("first", "0")
          .at_least(0)
          .in_unit("slots")
          .doc_text("slots before this one are left out"),
      option::integer("slots", "0").at_least(0).in_unit("slots").doc_text("how many are written; 0 = all"),
  };
  static constexpr ComponentInfo kInfo{.id = "trace",
                                       .summary = "timeline of compute, transfers and saves of every rank",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Trace(const Options& options);
  Trace(std::int64_t first, std::int64_t slots, std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return true; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric&) override {}
  void on_span(const Span& span) override;
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view interface_id) override;

 private:
  void event();
  void flush();

  std::int64_t first_, slots_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<WritableFile> file_;
  int rank_ = 0;
  std::int64_t slot_ = 0;  ///< slot of the next spans
  bool empty_ = true;
  Lanes lanes_;
  std::string buffer_;
};

}  // namespace tenon::trace
