// Observer `csv` (contract observer/1): metrics.csv in the run folder, one row per metric (a long table), for
// spreadsheets and data frames. A resumed run first drops the rows beyond its checkpoint.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tenon::csv {

// A table of metrics in RFC 4180 form: fields with a comma, a quote or a line break are quoted, quotes in
// them doubled. Lines end with LF, as most tools write and all read.

/// Appends one field; the caller writes commas and line ends.
void append_field(std::string& out, std::string_view text);
/// Appends the shortest text that reads back to the same double; "nan", "inf", "-inf".
void append_number(std::string& out, double value);
void append_number(std::string& out, std::int64_t value);

/// Returns the header and the rows whose first field is a step not beyond `last_step`. A torn or foreign row
/// ends the kept text; `whole` tells whether there was none. Returns "" when `text` does not begin with
/// `header`.
std::string keep_rows(std::string_view text, std::string_view header, std::int64_t last_step, bool& whole);

inline constexpr std::string_view kHeader = "step,split,name,value,wall_s,samples,tokens,bytes_sent\n";

class Csv final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("file", "'metrics.csv'").doc_text("name within the run folder"),
      option::integer("flush_every", "50")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between writes of the buffered rows"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "csv", .summary = "all metrics as a table of comma-separated values", .options = kOptions};

  Csv(const Options& options, Host& host);
  Csv(std::string name, std::int64_t flush_every, Host& host, std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric& metric) override;
  void on_span(const Span&) override {}
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  void flush();

  std::string name_;
  std::int64_t flush_every_;
  Host& host_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<WritableFile> file_;
  std::string buffer_;
};

}  // namespace tenon::csv
