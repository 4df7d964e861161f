// Rows in one host allocation. Later tiers implement the same interface and keep rows elsewhere.
#include "graph/row_table.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cstring>
#include <vector>

namespace tenon::graph {
namespace {

class HostRowTable final : public RowTable {
 public:
  HostRowTable(std::string name, DType dtype, std::int64_t rows, std::int64_t width, std::int64_t first,
               std::int64_t last)
      : name_(std::move(name)),
        dtype_(dtype),
        rows_(rows),
        width_(width),
        first_(first),
        last_(last),
        row_bytes_(static_cast<std::size_t>(dtype_bytes(dtype, width))),
        memory_(row_bytes_ * static_cast<std::size_t>(last - first)),
        versions_(static_cast<std::size_t>(last - first), 0) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return dtype_; }
  std::int64_t owned_first() const override { return first_; }
  std::int64_t owned_last() const override { return last_; }

  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    require_room(ids, out);
    auto* to = static_cast<std::byte*>(out.data);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(to + i * row_bytes_, memory_.data() + slot(ids[i]) * row_bytes_, row_bytes_);
    }
  }

  void write(std::span<const std::int64_t> ids, TensorView values) override {
    require_room(ids, values);
    const auto* from = static_cast<const std::byte*>(values.data);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t at = slot(ids[i]);
      std::memcpy(memory_.data() + at * row_bytes_, from + i * row_bytes_, row_bytes_);
      ++versions_[at];
    }
  }

  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i) out[i] = versions_[slot(ids[i])];
  }

 private:
  std::size_t slot(std::int64_t id) const {
    if (id < first_ || id >= last_) {
      fail_run(fmt::format("row table '{}': row {} is not one of this rank's rows [{}, {})", name_, id,
                           first_, last_));
    }
    return static_cast<std::size_t>(id - first_);
  }

  void require_room(std::span<const std::int64_t> ids, const TensorView& view) const {
    if (view.dtype != dtype_ || view.elements() != static_cast<std::int64_t>(ids.size()) * width_) {
      fail_run(fmt::format("row table '{}': expected {} rows of {} {}, found a tensor {} of {}", name_,
                           ids.size(), width_, dtype_name(dtype_), view.shape.text(),
                           dtype_name(view.dtype)));
    }
  }

  std::string name_;
  DType dtype_;
  std::int64_t rows_, width_, first_, last_;
  std::size_t row_bytes_;
  std::vector<std::byte> memory_;
  std::vector<std::uint64_t> versions_;
};

}  // namespace

std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last) {
  return std::make_unique<HostRowTable>(std::move(name), dtype, rows, width, first, last);
}

}  // namespace tenon::graph
