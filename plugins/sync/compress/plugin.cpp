// The plugin `tenon.sync_compress`: component `sign`, whole, and `powersgd` of powersgd.hpp.
#include "compressor.hpp"
#include "powersgd.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/signs.hpp>

#include <algorithm>

namespace tenon::sync_compress {

/// Sync `sign` (Karimireddy et al. 2019, arXiv 1901.09847): each replica sends one bit per element and one
/// scale per tensor, mean |x| sign(x), to all others, with error feedback.
class Sign final : public Compressor {
 public:
  static constexpr OptionSpec kOptions[] = {
      kInner, start_after_option("0", "first slots, in which everything is sent uncompressed"),
      kErrorFeedback};
  static constexpr ComponentInfo kInfo{
      .id = "sign",
      .summary = "signs of gradients with a scale per tensor and error feedback",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "compression that does not begin leaves the inner strategy",
       .options = "start_after = 1000000000\ninner = {type = 'ddp'}",
       .other = "type = 'ddp'"},
  };
  explicit Sign(const Options& options) : Compressor("sign", options) {}

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  void prepare_part(std::size_t part) override;
  void begin(std::size_t part) override;
  void end(std::span<const std::size_t> parts) override;

 private:
  struct Bits {
    TensorView rows;                ///< u8 [K, row]: a scale in f32 per tensor, then each tensor's bits
    std::vector<SignPlace> places;  ///< of each tensor within a row
    TensorView scratch;
    Request request;
  };
  SignOps* ops_ = nullptr;
  std::vector<Bits> bits_;  ///< by part
};

void Sign::prepare_part(std::size_t index) {
  if (index == 0) ops_ = &device().family<SignOps>();
  const Part& part = parts()[index];
  Bits bits;
  auto row = static_cast<std::int64_t>(part.pieces.size() * sizeof(float));
  std::size_t scratch = 0;
  for (const Piece& piece : part.pieces) {
    const auto scale = static_cast<std::int64_t>(bits.places.size() * sizeof(float));
    bits.places.push_back({.scale = scale, .bits = row});
    row += (piece.elements + 7) / 8;
    scratch = std::max(scratch, ops_->encode_scratch(piece.elements));
  }
  bits.rows = allocate(DType::kU8, row * members());
  bits.rows.shape = Shape{members(), row};
  bits.scratch = allocate(DType::kU8, static_cast<std::int64_t>(scratch));
  bits_.push_back(std::move(bits));
}

void Sign::begin(std::size_t index) {
  const Part& part = parts()[index];
  Bits& bits = bits_[index];
  if (feeds_back()) elementwise().fill(part.pending, 0);
  const std::int64_t length = bits.rows.shape[1];
  const TensorView row = slice(bits.rows, group().rank() * length, length);
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const Piece& piece = part.pieces[i];
    const TensorView lost = feeds_back() ? slice(part.pending, piece.begin, piece.elements) : TensorView{};
    ops_->encode(slice(part.data, piece.begin, piece.elements), row, bits.places[i], lost, bits.scratch);
  }
  bits.request = group().start_all_gather(bits.rows);
}

void Sign::end(std::span<const std::size_t> indices) {
  for (const std::size_t index : indices) {
    const Part& part = parts()[index];
    Bits& bits = bits_[index];
    group().wait(bits.request);
    for (std::size_t i = 0; i < part.pieces.size(); ++i) {
      const Piece& piece = part.pieces[i];
      ops_->decode(bits.rows, bits.places[i], slice(part.data, piece.begin, piece.elements));
    }
  }
}

}  // namespace tenon::sync_compress

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_compress",
                               .version = "0.1.0",
                               .summary = "compressed means of gradients"},
             tenon::sync_compress::Powersgd, tenon::sync_compress::Sign)
