// Observer `numerics` (contracts observer/1 and tenon.observer.numerics/1): the effect of the policy's number
// formats on each operand of each product, as lines of numerics.jsonl in the run folder. It observes some
// slots only; the others cost nothing.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/numerics.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::numerics {

// A line of numerics.jsonl: one operand of one product as a JSON object. README.md lists the keys.

/// Appends a line with its newline. `blocks` adds the largest magnitude of every block.
void append_line(std::string& out, const OperandNumerics& operand, bool blocks);

/// Returns the complete lines whose step is not beyond `last_step`. A torn or foreign line ends the kept
/// text; `whole` tells whether there was none.
std::string keep_lines(std::string_view text, std::int64_t last_step, bool& whole);

/// Returns 16 hexadecimal digits, the first half of xxh3-128 over the operand's bytes: equal bits have equal
/// digits.
std::string operand_hash(const TensorView& input);

class Numerics final : public Observer, public NumericsObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between measurements, beginning with the first slot"),
      option::texts("layers", "['*']").doc_text("names of layers to measure; * matches any characters"),
      option::boolean("blocks", "false")
          .doc_text("also write the largest magnitude of every block, one number per block and line"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "numerics",
      .summary = "quantization errors, ranges and hashes of the operands of matrix products",
      .options = kOptions};

  Numerics(const Options& options, Host& host);
  Numerics(std::int64_t every, std::vector<std::string> layers, bool blocks, Host& host,
           std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord&) override { flush(); }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override { flush(); }
  void* query(std::string_view interface_id) override;

  bool numerics(std::int64_t slot) override { return slot % every_ == 0; }
  void on_operand(const OperandNumerics& operand) override;

 private:
  void flush();

  std::int64_t every_;
  std::vector<std::string> layers_;
  bool blocks_;
  Host& host_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<WritableFile> file_;
  std::string buffer_, layer_;
};

}  // namespace tenon::numerics
