// Operator family of a device for row tables in its memory (<tenon/tier.hpp>, DeviceRows): rows by ids, sums
// of bags, and what row-wise updates need beside formulas. Optional: a device offers it to the layers, tiers
// and optimizers that ask for it. Conventions are those of <tenon/ops/dense.hpp>.
//
// Callers have checked the ids. Every element depends on its own inputs alone, in the order that is given
// here, so all devices have the same bits.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>

TENON_ABI_BEGIN

class TableRowOps {
 public:
  static constexpr const char* kId = "tenon.device.table_rows/1";
  virtual ~TableRowOps();
  /// out[i] = table[ids[i] - first], of any dtype of whole bytes. table: [rows, width]; ids: i64 [n]; out:
  /// [n, width].
  virtual void gather(TensorView table, std::int64_t first, TensorView ids, TensorView out) = 0;
  /// table[ids[i] - first] = rows[i]. No id twice.
  virtual void scatter(TensorView rows, TensorView table, std::int64_t first, TensorView ids) = 0;
  /// out[b, which] = the rows of bag ids[b, which] added in the order of its ids, in the type of the table
  /// and rounded once; negative ids are left out, and an empty bag is zero. `mean`: divided by the number of
  /// rows. table: f32 (f64) [rows, width]; ids: i32 [batch, bags, length]; out: [batch, bags, width], of
  /// which other bags stay as they are.
  virtual void pool(TensorView table, TensorView ids, std::int64_t which, bool mean, TensorView out) = 0;
  /// means[r] = (sum of (scale x[r, j])^2) / width. Term j goes to partial sum j mod 8; the sum is
  /// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) of those. x: f32 (f64) [rows, width]; means: [rows].
  virtual void mean_squares(TensorView x, double scale, TensorView means) = 0;
  /// rows[r, j] -= rates[r] (scale x[r, j]). rows, x: f32 (f64) [rows, width]; rates: [rows].
  virtual void subtract_scaled(TensorView rows, TensorView x, double scale, TensorView rates) = 0;
};

TENON_ABI_END
