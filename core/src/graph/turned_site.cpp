// Planes to rows, the product, rows to planes.
#include "graph/turned_site.hpp"

#include <tenon/device.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/site_products.hpp>

#include <utility>

namespace tenon::graph {
namespace {

/// A window of one point over so many of them. Devices share lines among their threads, hence several.
WindowSpec one_point(std::int64_t points) {
  constexpr std::int64_t kMostInLine = 256;
  std::int64_t line = std::min(points, kMostInLine);
  while (line > 1 && points % line != 0) --line;
  WindowSpec spec;
  spec.spatial = 2, spec.extent[0] = points / line, spec.extent[1] = line;
  return spec;
}

class TurnedSite final : public LinearSite {
 public:
  TurnedSite(const SiteInfo& info, SiteHost& host, std::unique_ptr<LinearSite> rows)
      : rows_(info.chunk),
        n_(info.n),
        k_(info.k),
        dtype_(info.activation),
        windows_(host.device().family<WindowOps>()),
        point_(one_point(info.chunk)),
        site_(std::move(rows)) {}

  SiteMemory memory() const override {
    SiteMemory memory = site_->memory();
    memory.scratch = line_up(memory.scratch) + bytes(k_) + bytes(n_);
    return memory;
  }

  bool reads_input() const override { return site_->reads_input(); }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    turn(x, x_rows(call));
    site_->fprop(inner(call), x_rows(call), w, bias, y_rows(call));
    windows_.fold(point_, y_rows(call), 0, planes(y, n_), false);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    turn(dy, y_rows(call));
    site_->dgrad(inner(call), y_rows(call), w, x_rows(call), false);
    windows_.fold(point_, x_rows(call), 0, planes(dx, k_), accumulate);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    if (!x.empty()) turn(x, x_rows(call));
    turn(dy, y_rows(call));
    site_->wgrad(inner(call), x.empty() ? x : x_rows(call), y_rows(call), dw, accumulate);
  }

 private:
  std::size_t bytes(std::int64_t columns) const {
    return line_up(static_cast<std::size_t>(dtype_bytes(dtype_, rows_ * columns)));
  }

  /// The call as the site of rows expects it: scratch of the size that it asked for.
  SiteCall inner(const SiteCall& call) const {
    SiteCall result = call;
    result.scratch.shape = Shape{static_cast<std::int64_t>(site_->memory().scratch)};
    return result;
  }

  /// Rows of x or dx follow the scratch of the site, and those of y or dy follow them.
  TensorView x_rows(const SiteCall& call) const { return rows(call, 0, k_); }
  TensorView y_rows(const SiteCall& call) const { return rows(call, bytes(k_), n_); }
  TensorView rows(const SiteCall& call, std::size_t offset, std::int64_t columns) const {
    std::byte* begin = static_cast<std::byte*>(call.scratch.data) + line_up(site_->memory().scratch);
    return {begin + offset, Shape{rows_, columns}, dtype_, call.scratch.space};
  }

  TensorView planes(const TensorView& view, std::int64_t channels) const {
    return view.reshaped({1, channels, point_.extent[0], point_.extent[1]});
  }

  void turn(const TensorView& view, const TensorView& rows) const {
    windows_.unfold(point_, planes(view, rows.shape[1]), 0, rows);
  }

  std::int64_t rows_, n_, k_;
  DType dtype_;
  WindowOps& windows_;
  WindowSpec point_;
  std::unique_ptr<LinearSite> site_;
};

}  // namespace

std::unique_ptr<LinearSite> make_turned_site(const SiteInfo& info, SiteHost& host,
                                             std::unique_ptr<LinearSite> rows) {
  return std::make_unique<TurnedSite>(info, host, std::move(rows));
}

}  // namespace tenon::graph
