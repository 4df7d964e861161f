// Observer `trace` (contract observer/1): trace.rank<r>.json in Chrome's trace format, one file per rank, one
// lane per track. The file is an array that viewers also read without its end, so a killed run leaves a
// usable file.
#pragma once

#include <tenon/files.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::trace {

/// Lanes of a timeline. A viewer requires that slices of one lane nest, so spans of one track that overlap
/// (two concurrent transfers) use separate lanes. Within a lane slices are consecutive: begins increase, and
/// no slice begins before the previous one ended.
class Lanes {
 public:
  struct Place {
    int lane;
    bool opened;  ///< first use: the caller writes its name
  };
  /// Overlap depends on timing, so a lane may be new in a slot that must not allocate.
  Lanes() { lanes_.reserve(kUsual); }
  /// Expects times in units of the file, already rounded, so that rounding cannot make neighbours overlap.
  Place place(std::string_view track, std::int64_t begin, std::int64_t end);
  /// "overlap", "overlap 2", ...
  const std::string& name(int lane) const { return lanes_[lane].name; }

 private:
  struct Lane {
    std::string track, name;
    std::int64_t free_at;
  };
  static constexpr std::size_t kUsual = 64;  ///< more than a run with many transfers uses
  std::vector<Lane> lanes_;
};

class Trace final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("first", "0").at_least(0).in_unit("slots").doc_text("first slot that is written"),
      option::integer("slots", "0")
          .at_least(0)
          .in_unit("slots")
          .doc_text("number of slots that are written; 0 = all"),
  };
  static constexpr ComponentInfo kInfo{.id = "trace",
                                       .summary = "timeline of compute, transfers and saves of every rank",
                                       .options = kOptions};

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
