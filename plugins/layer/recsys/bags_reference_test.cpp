// Layer `embedding_bag` against PyTorch (tests/reference/recsys.safetensors): repeated rows, missing rows,
// empty bags, one id per table.
#include "reference/recorded.hpp"
#include "testing.hpp"

namespace tenon::testing {
namespace {

struct BagCase {
  const char *recorded, *mode;
};
std::ostream& operator<<(std::ostream& out, const BagCase& c) {
  return out << c.recorded;
}

class RecordedBags : public ::testing::TestWithParam<BagCase> {
 protected:
  std::vector<double> recorded(const std::string& tensor) const {
    return recorded_.values(std::string(GetParam().recorded) + "." + tensor);
  }
  std::unique_ptr<LayerHarness> make(Graphs& graphs) const {
    const std::string name = GetParam().recorded;
    const NodeSpec node{"n",
                        "embedding_bag",
                        {"ids"},
                        {{"rows", std::vector<std::int64_t>{5, 7, 3}},
                         {"width", std::int64_t{4}},
                         {"mode", std::string(GetParam().mode)}}};
    auto harness = graphs.make({node}, {"n"},
                               {{"ids", recorded_.shape(name + ".ids"), DType::kI32, recorded("ids")},
                                {"d_n", recorded_.shape(name + ".d_y"), DType::kF64, recorded("d_y")}});
    for (int table = 0; table < 3; ++table)
      harness->set_parameter("n." + std::to_string(table) + ".weight", recorded("w" + std::to_string(table)));
    return harness;
  }
  Recorded recorded_{"recsys"};
};

TEST_P(RecordedBags, GiveTheRecordedOutputsAndGradients) {
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    const auto harness = make(graphs);
    harness->forward();
    harness->backward(1.0, true);
    // Sums of at most a dozen terms; PyTorch's own float32 loses 5e-8.
    const double bound = graphs.exact() ? 1e-15 : 5e-7;
    EXPECT_LT(relative_error(harness->value("n"), recorded("y")), bound) << setting.name();
    for (int table = 0; table < 3; ++table) {
      const std::string number = std::to_string(table);
      EXPECT_LT(relative_error(harness->gradient("n." + number + ".weight"), recorded("d_w" + number)), bound)
          << setting.name() << " table " << table;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, RecordedBags,
                         ::testing::Values(BagCase{"bag_sum", "sum"}, BagCase{"bag_mean", "mean"},
                                           BagCase{"bag_one", "sum"}),
                         [](const auto& info) { return std::string(info.param.recorded); });

}  // namespace
}  // namespace tenon::testing
