// Computation during an open exchange: outputs that read a rank's own part alone, and gradients of weights.
// Observed in the memory when a rank first waits for bytes.
#include "window_cases.hpp"

#include <tenon/transport.hpp>

#include <functional>

namespace model_parallel::overlap_test {
namespace {

using tenon::testing::MeshRanks;

/// Calls `before` before every wait.
class Watched final : public tenon::CommunicatorDecorator {
 public:
  Watched(std::unique_ptr<tenon::Communicator> inner, const std::function<void()>& before)
      : CommunicatorDecorator(std::move(inner)), before_(before) {}
  void wait(tenon::Request request) override {
    if (before_) before_();
    CommunicatorDecorator::wait(request);
  }

 private:
  const std::function<void()>& before_;
};

struct Seen {
  std::vector<double> y, dw;  ///< when the rank first waits in forward, in backward
  std::vector<double> y_in_the_end;
};

/// One feature of 12 points over two ranks, 3 wide: each rank computes 6, of which one reads the other's
/// part.
std::vector<Seen> watch(bool overlap) {
  WindowCase c;
  c.type = "conv", c.x = Shape{1, 2, 12};
  c.kernel = {3}, c.stride = {1}, c.dilation = {1}, c.padding = {1};
  c.dims = {2}, c.axes = {0}, c.overlap = overlap;
  std::vector<std::function<void()>> before(2);
  std::vector<Seen> seen(2);
  MeshRanks world({2});
  const auto errors = world.run(
      [&](Mesh& at) {
        const std::size_t rank = at.index();
        Bench bench("cpu", "reference", 1);
        const auto precision = bench.make_component<tenon::Precision>("fp64", "");
        const HarnessSpec spec{.layers = bench.layers.get(),
                               .device = bench.device.component.get(),
                               .host = &bench.host,
                               .precision = precision.component.get(),
                               .mesh = &at};
        LayerHarness harness(spec, nodes_of(c, true, "conv"), {"y"},
                             {{"x", c.x, tenon::DType::kF64, tenon::testing::normals(24, "x")}});
        const auto once = [&](std::vector<double>& where, auto what) {
          before[rank] = [&where, what] {
            if (where.empty()) where = what();
          };
        };
        once(seen[rank].y, [&] { return harness.value("c"); });
        harness.forward();
        seen[rank].y_in_the_end = harness.value("c");
        once(seen[rank].dw, [&] { return harness.gradient("c.weight"); });
        harness.backward(1.0, true);
        before[rank] = nullptr;
      },
      [&](std::unique_ptr<tenon::Communicator> inner, int rank) -> std::unique_ptr<tenon::Communicator> {
        return std::make_unique<Watched>(std::move(inner), before[rank]);
      });
  EXPECT_EQ(errors, no_errors(2));
  return seen;
}

int equal(const std::vector<double>& a, const std::vector<double>& b) {
  int count = 0;
  for (std::size_t i = 0; i < b.size(); ++i) count += a.at(i) == b[i] ? 1 : 0;
  return count;
}

TEST(Overlap, InnerOutputsAreThereBeforeTheFirstWait) {
  for (const Seen& rank : watch(true)) {
    ASSERT_EQ(rank.y_in_the_end.size(), 6u);
    EXPECT_EQ(equal(rank.y, rank.y_in_the_end), 5);
  }
  for (const Seen& rank : watch(false)) EXPECT_EQ(equal(rank.y, rank.y_in_the_end), 0);
}

TEST(Overlap, GradientsOfWeightsAreAddedUpWhileThoseOfOutputsTravel) {
  for (const Seen& rank : watch(false)) {
    ASSERT_EQ(rank.dw.size(), 6u);
    for (const double term : rank.dw) EXPECT_NE(term, 0);
  }
}

}  // namespace
}  // namespace model_parallel::overlap_test
