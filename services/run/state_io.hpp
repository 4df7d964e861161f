// StateVisitor in its two forms: collecting what components keep, and giving it back.
#pragma once

#include <tenon/checkpoint.hpp>
#include <tenon/device.hpp>
#include <tenon/state.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

/// Walks components in save mode. Scalars become exact texts, tensors stay views.
class StateCollector final : public StateVisitor {
 public:
  bool loading() const override { return false; }
  void integer(std::string_view name, std::int64_t& value) override;
  void real(std::string_view name, double& value) override;
  void text(std::string_view name, std::string& value) override;
  void tensor(std::string_view name, TensorView value) override;
  void enter(std::string_view name) override { prefix_.emplace_back(name); }
  void leave() override { prefix_.pop_back(); }

  std::vector<std::pair<std::string, std::string>> scalars;
  std::vector<std::pair<std::string, TensorView>> tensors;

 private:
  std::string path(std::string_view name) const;
  void add(std::string_view name, std::string text);
  std::vector<std::string> prefix_;
};

/// Source of saved scalars and tensors.
class StateSource {
 public:
  virtual ~StateSource();
  /// Null when absent.
  virtual const std::string* scalar(const std::string& name) = 0;
  /// Fills `out`; throws Error(kRun) when absent or of another type or shape.
  virtual void tensor(const std::string& name, TensorView out) = 0;
};

/// State in a checkpoint whose names begin with `prefix`.
class CheckpointSource final : public StateSource {
 public:
  CheckpointSource(CheckpointReader& reader, Device& device, std::string prefix = "")
      : reader_(reader), device_(device), prefix_(std::move(prefix)) {}

  /// Whether it has all that `kept` names, tensors with the same types and shapes.
  bool holds(const StateCollector& kept) const;
  const std::string* scalar(const std::string& name) override { return reader_.meta(prefix_ + name); }
  void tensor(const std::string& name, TensorView out) override;
  /// Elements [offset, offset + out.shape) of a tensor, into memory of the device.
  void read(const std::string& name, const Shape& offset, TensorView out);

 private:
  CheckpointReader& reader_;
  Device& device_;
  std::string prefix_;
  std::vector<std::byte> staging_;
};

/// Treatment of a missing scalar: an error that names it, or the value stays as it is.
enum class Missing : std::uint8_t { kError, kStays };

/// Walks components in load mode.
class StateRestorer final : public StateVisitor {
 public:
  explicit StateRestorer(StateSource& source, Missing missing = Missing::kError)
      : source_(source), missing_(missing) {}
  bool loading() const override { return true; }
  void integer(std::string_view name, std::int64_t& value) override;
  void real(std::string_view name, double& value) override;
  void text(std::string_view name, std::string& value) override;
  void tensor(std::string_view name, TensorView value) override;
  void enter(std::string_view name) override { prefix_.emplace_back(name); }
  void leave() override { prefix_.pop_back(); }

 private:
  std::string path(std::string_view name) const;
  /// Null where a missing one stays.
  const std::string* find(std::string_view name);
  StateSource& source_;
  Missing missing_;
  std::vector<std::string> prefix_;
};

/// Fills memory of the device by read(host), which reads into host memory; `staging` serves where those
/// differ.
template <typename Read>
void read_into(TensorView out, Device& device, std::vector<std::byte>& staging, Read&& read) {
  if (out.space == MemorySpace::kHost) return read(out);
  TensorView host = out;
  host.space = MemorySpace::kHost;
  staging.resize(out.bytes());
  host.data = staging.data();
  read(host);
  device.copy(host, out);
}

/// Lets `reader` decode rows that a recovery policy stored in encodings of its own. codec() points to the
/// policy's RowCodec, as a pointer or a guard, and outlives the reader.
template <typename Codec>
void add_row_decoders(CheckpointReader& reader, Codec codec) {
  for (const std::string_view encoding : codec()->encodings()) {
    reader.add_decoder(std::string(encoding),
                       [codec, encoding](const EncodedPart& part, std::span<std::byte> out) {
                         TensorView rows;
                         rows.data = out.data();
                         rows.dtype = part.dtype;
                         rows.shape = part.shape;
                         codec()->decode(encoding, part.payload, rows);
                       });
  }
}

}  // namespace tenon::train
