// Base of the compressing decorators: they reduce the means of the inner strategy (MeanReducer), add
// compression errors to the next mean of the same elements, and discard them when an update is refused.
#pragma once

#include <tenon/identities.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/options.hpp>
#include <tenon/sync_extra.hpp>

#include <memory>
#include <vector>

namespace tenon::sync_compress {

inline constexpr OptionSpec kInner = option::component("inner", "sync/1")
                                         .mandatory()
                                         .doc_text(
                                             "strategy whose means are compressed: of gradients (ddp) or of "
                                             "pseudo-gradients (diloco, palsgd)");
inline constexpr OptionSpec kErrorFeedback =
    option::boolean("error_feedback", "true")
        .doc_text(
            "add the compression error to the next mean; without it training follows another objective");
constexpr OptionSpec start_after_option(const char* fallback, const char* doc) {
  return option::integer("start_after", fallback).at_least(0).in_unit("slots").doc_text(doc);
}

/// A parameter within a part; a matrix of its first extent and all others.
struct Piece {
  int parameter = 0;
  std::int64_t begin = 0, elements = 0;  ///< real numbers, from the part's beginning
  std::int64_t rows = 0, columns = 0;
};

struct Part {
  TensorView data;     ///< flat reals; the input of the mean, then the mean
  TensorView error;    ///< error of earlier means, in units of the mean loss
  TensorView pending;  ///< error of this mean; becomes `error` if the update is applied
  std::vector<Piece> pieces;
  double scale = 1;  ///< from data to units of the mean loss
  Request request;
};

class Compressor : public SyncDecorator, private MeanReducer, protected ComponentIdentities {
 public:
  Compressor(const char* name, const Options& options);
  ~Compressor() override;
  void start(Replica& replica) override;
  std::int64_t first_round() const override;
  void after_step(const Slot& slot, const StepOutcome& outcome) override;
  void* query(std::string_view interface_id) override;

 protected:
  virtual void prepare_part(std::size_t part) = 0;
  /// Part::data holds the input of the mean, error included. Starts the first transfer.
  virtual void begin(std::size_t part) = 0;
  /// Completes the begun parts, in that order, with their means in Part::data and, with error feedback, the
  /// errors in Part::pending, in the units of data.
  virtual void end(std::span<const std::size_t> parts) = 0;
  /// The update with this mean is applied: its remaining data are now state.
  virtual void commit(std::size_t) {}

  TensorView allocate(DType dtype, std::int64_t elements);
  std::vector<Part>& parts() { return parts_; }
  Communicator& group() const { return *group_; }
  Elementwise& elementwise() const { return *elementwise_; }
  Device& device() const { return replica().device(); }
  bool feeds_back() const { return feeds_back_; }
  int members() const { return group_->size(); }
  /// Returns `elements` of a part, or of a buffer like it, from `begin`.
  static TensorView slice(TensorView view, std::int64_t begin, std::int64_t elements);

 private:
  void prepare(Replica& replica, Purpose purpose, std::span<const MeanPart> parts) override;
  void add(std::size_t part, double scale) override;
  void finish() override;
  void keep();

  const char* name_;
  std::int64_t start_after_;
  bool feeds_back_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  /// Own communicator, closed before the buffers are freed: a run that ends in a failure leaves transfers
  /// pending. Null: no other replica.
  std::unique_ptr<Communicator> group_;
  ParameterSet* error_ = nullptr;
  std::vector<Part> parts_;
  std::vector<std::size_t> added_;    ///< since the last finish
  std::vector<std::size_t> pending_;  ///< compressed means whose outcome is pending
  bool compressing_ = false;          ///< for the added parts
  std::vector<TensorView> owned_;
};

}  // namespace tenon::sync_compress
