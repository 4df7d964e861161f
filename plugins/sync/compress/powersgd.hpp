// Sync `powersgd` (Vogels et al. 2019, arXiv 1905.13727, algorithm 1): sends matrices as two thin factors of
// their mean, P = M Q and Q = M^T P with P orthogonal, one step of a subspace iteration that continues from
// slot to slot; everything else is sent unchanged.
#pragma once

#include "compressor.hpp"

#include <tenon/ops/dense.hpp>
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>
#include <tenon/state.hpp>

#include <memory>

namespace tenon::sync_compress {

class Powersgd final : public Compressor {
 public:
  static constexpr OptionSpec kOptions[] = {
      kInner,
      option::integer("rank", "1").at_least(1).at_most(1024).doc_text("columns of the factors"),
      start_after_option(
          "1000",
          "first slots, in which everything is sent uncompressed; recommended: a tenth of the training"),
      option::real("min_compression", "2")
          .at_least(1)
          .doc_text("an n x m matrix is compressed only if (n + m) rank times this is less than n m"),
      kErrorFeedback,
      option::boolean("warm_start", "true")
          .doc_text(
              "start from the factor of the previous slot; false: from new random numbers in each slot"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "powersgd", .summary = "gradient matrices sent as low-rank factors", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "compression that does not begin leaves the inner strategy",
       .options = "start_after = 1000000000\ninner = {type = 'ddp'}",
       .other = "type = 'ddp'"},
      {.why = "matrices of which too little would be saved are sent whole",
       .options = "start_after = 0\nrank = 1024\ninner = {type = 'ddp'}",
       .other = "type = 'ddp'",
       .given = "parallel.ranks = 2"},
  };
  explicit Powersgd(const Options& options)
      : Compressor("powersgd", options),
        rank_(options.integer("rank")),
        min_compression_(options.real("min_compression")),
        warm_start_(options.boolean("warm_start")) {}

  void state(StateVisitor& visitor) override;

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  void prepare_part(std::size_t part) override;
  void begin(std::size_t part) override;
  void end(std::span<const std::size_t> parts) override;
  void commit(std::size_t part) override;

 private:
  struct Matrix {
    std::int64_t begin = 0, rows = 0, columns = 0;
    TensorView p, q;   ///< [rows, rank] and [columns, rank], in transfer
    TensorView start;  ///< the initial q of the next slot
    std::uint64_t first_draw = 0;
    std::unique_ptr<Gemm> to_p, to_q, product, residual;
    TensorView scratch;
    std::vector<std::uint8_t> spent;  ///< by column: p is linearly dependent on the earlier ones
  };
  struct Factors {
    std::vector<Matrix> matrices;
    std::vector<Piece> whole;  ///< sent unchanged
    TensorView first, second;  ///< [whole ..., p ...] and [q ...]
    TensorView starts;         ///< state
    Request request;
  };

  void add_matrix(Factors& factors, const Piece& piece, DType dtype);
  void draw(Matrix& matrix, std::uint64_t step, bool spent_only);
  void orthogonalise(Matrix& matrix);

  std::int64_t rank_;
  double min_compression_;
  bool warm_start_;
  RandomKey key_;
  std::uint64_t draws_ = 0;
  std::vector<Factors> factors_;  ///< by part
  std::vector<double> columns_;   ///< workspace of orthogonalise, [rank, rows]
  std::vector<std::byte> host_;   ///< factors of a device with separate memory
};

}  // namespace tenon::sync_compress
