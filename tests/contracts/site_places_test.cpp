// Place information for a policy that keeps the first or last blocks or products of a network: each product's
// place among the blocks, where layers under one number ("h.1.q") are one block, and among the products.
// Heads are in neither.
#include "support.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

namespace rehearsal::site_places_test {
namespace {

using namespace tenon;
namespace fixture = tenon::testing;

class Listens final : public PlainPrecision {
 public:
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost&) override {
    places.emplace_back(site.layer, site.block_index, site.block_count);
    gemms.emplace_back(site.layer, site.gemm_index, site.gemm_count);
    return nullptr;
  }
  using Place = std::tuple<std::string, int, int>;  ///< layer, block, blocks
  std::vector<Place> places, gemms;                 ///< of gemms: layer, product, products
};

TEST(SitePlaces, CountBlocksByTheNumbersInTheirNames) {
  fixture::Bench bench("cpu", "auto", 1);
  Listens policy;
  const auto linear = [](const char* name, const char* input, const char* module = "linear") {
    return NodeSpec{
        name, "linear", {input}, {{"features", std::int64_t{4}}, {"module", std::string(module)}}};
  };
  fixture::LayerHarness harness(
      {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &policy},
      {linear("stem", "x"), linear("h.0.q", "stem"), linear("h.0.mlp.1", "h.0.q"),
       linear("h.10.q", "h.0.mlp.1"), linear("h2.q", "h.10.q"), linear("out", "h2.q", "head")},
      {"out"}, {{"x", {2, 4}, DType::kF32, fixture::normals(8, "x")}});
  const std::vector<Listens::Place> expected = {{"stem", 0, 4},   {"h.0.q", 1, 4}, {"h.0.mlp.1", 1, 4},
                                                {"h.10.q", 2, 4}, {"h2.q", 3, 4},  {"out", -1, 4}};
  ASSERT_GE(policy.places.size(), expected.size());
  policy.places.resize(expected.size());  // a harness may build the graph more than once
  EXPECT_EQ(policy.places, expected);
  const std::vector<Listens::Place> products = {{"stem", 0, 5},   {"h.0.q", 1, 5}, {"h.0.mlp.1", 2, 5},
                                                {"h.10.q", 3, 5}, {"h2.q", 4, 5},  {"out", -1, 5}};
  policy.gemms.resize(products.size());
  EXPECT_EQ(policy.gemms, products);
}

}  // namespace
}  // namespace rehearsal::site_places_test
