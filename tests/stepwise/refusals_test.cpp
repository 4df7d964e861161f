// Passes and graphs that cannot run stepwise, and what the errors say.
#include "language.hpp"

#include <tenon/stepwise.hpp>

#include <gtest/gtest.h>

#include <functional>

namespace tenon::testing::refusals_test {
namespace {

std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "";
}

class StepRefusals : public ::testing::Test {
 protected:
  StepRefusals() : bench_(language_case("gpt_neo"), "cpu", "reference", "fp32") {
    state_ = bench_.stepwise(2, 3).make_sequences(4);
  }
  std::string step(std::vector<std::int64_t> first, std::vector<std::int64_t> count,
                   std::vector<std::int64_t> kept) {
    return error_of(ErrorKind::kRun, [&] {
      bench_.stepwise(2, 3).step(bench_.weights(), *state_, {.first = first, .count = count, .kept = kept});
    });
  }

  LanguageBench bench_;
  std::unique_ptr<SequenceState> state_;
};

TEST_F(StepRefusals, PositionsThatDoNotFit) {
  EXPECT_EQ(step({0, 0}, {3, 2}, {0, 3}), "");
  EXPECT_EQ(
      step({0}, {1, 1}, {0, 1}),
      "a stepwise pass of 2 rows was given numbers of 1; expected one of first, count and kept per row");
  EXPECT_EQ(step({0, 0}, {1, 4}, {0, 1}),
            "row 1 of a stepwise pass has 4 places that count; expected 0 ... 3, the positions of a pass");
  EXPECT_EQ(step({0, 0}, {-1, 1}, {0, 1}),
            "row 0 of a stepwise pass has -1 places that count; expected 0 ... 3, the positions of a pass");
  EXPECT_EQ(step({0, 0}, {1, 1}, {0, 4}),
            "row 1 of a stepwise pass goes on with sequence 4; expected 0 ... 3");
  EXPECT_EQ(step({0, 0}, {1, 1}, {-1, 1}),
            "row 0 of a stepwise pass goes on with sequence -1; expected 0 ... 3");
  EXPECT_EQ(
      step({0, 0}, {1, 1}, {2, 2}),
      "row 1 of a stepwise pass goes on with sequence 2, as an earlier row does; expected one row each");
  EXPECT_EQ(
      step({3, 3}, {1, 1}, {0, 3}),
      "row 1 of a stepwise pass begins at position 3 of sequence 3, which holds 2; expected 0, to begin "
      "anew, or 2");
  EXPECT_EQ(
      step({1, 0}, {1, 1}, {1, 0}),
      "row 0 of a stepwise pass begins at position 1 of sequence 1, which holds 0; expected 0, to begin "
      "anew, or 0");
  EXPECT_EQ(step({3, 2}, {3, 3}, {0, 3}), "") << "what was refused changed nothing";
  for (std::int64_t at = 6; at < 18; at += 3) EXPECT_EQ(step({at, 0}, {3, 0}, {0, 0}), "");
  EXPECT_EQ(step({18, 0}, {2, 0}, {0, 0}),
            "row 0 of a stepwise pass adds 2 positions from 18 on; a sequence has at most 19");
  EXPECT_EQ(step({18, 0}, {1, 0}, {0, 0}), "");
}

TEST_F(StepRefusals, ARowWithoutPlacesMeansNothing) {
  EXPECT_EQ(step({7, 0}, {0, 2}, {99, 1}), "");
  EXPECT_EQ(step({2, -5}, {1, 0}, {1, 1}), "");
}

TEST_F(StepRefusals, APassThatFailsLeavesItsSequencesEmpty) {
  EXPECT_EQ(step({0, 0}, {3, 3}, {0, 1}), "");
  const TensorView tokens = bench_.stepwise(2, 3).inputs()[0];
  write(bench_.device(), tokens, std::vector<double>{1, 2, 3, 4, 5, 999});
  EXPECT_NE(step({3, 0}, {1, 3}, {0, 2}).find("999"), std::string::npos);
  write(bench_.device(), tokens, std::vector<double>(6, 1));
  EXPECT_EQ(
      step({3, 3}, {1, 1}, {1, 0}),
      "row 1 of a stepwise pass begins at position 3 of sequence 0, which holds 0; expected 0, to begin "
      "anew, or 0");
  EXPECT_EQ(step({3, 0}, {1, 1}, {1, 0}), "");
}

struct Foreign final : SequenceState {
  std::int64_t sequences() const override { return 4; }
  std::int64_t bytes() const override { return 0; }
};

TEST_F(StepRefusals, StatesOfOthers) {
  Foreign foreign;
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { bench_.stepwise(2, 3).step(bench_.weights(), foreign, {}); }),
            "a stepwise pass was given sequences that no executor made");
}

TEST_F(StepRefusals, StatesOfOtherGraphs) {
  const std::vector<std::int64_t> zeros{0, 0}, counts{1, 1}, kept{0, 1};
  LanguageBench other(language_case("decoder"), "cpu", "reference", "fp32");
  EXPECT_EQ(
      error_of(ErrorKind::kRun,
               [&] {
                 other.stepwise(2, 3).step(other.weights(), *state_,
                                           {.first = zeros, .count = counts, .kept = kept});
               }),
      "4 sequences of at most 19 positions were kept by 2 layers of another graph, precision or device; "
      "make them by an executor of the graph that goes on with them");
  Executor longer(bench_.spec(2, kContext - 1), bench_.graph(), bench_.data(3));
  longer.bind(bench_.weights());
  EXPECT_NE(
      error_of(
          ErrorKind::kRun,
          [&] { longer.step(bench_.weights(), *state_, {.first = zeros, .count = counts, .kept = kept}); }),
      "");
}

TEST_F(StepRefusals, WholeAndStepwiseGraphsAreTwo) {
  Executor whole(bench_.spec(2, 0), bench_.graph(), bench_.data(kContext));
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { whole.make_sequences(1); }),
            "make_sequences was asked of a graph that was not built to run stepwise");
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { whole.step(bench_.weights(), *state_, {}); }),
            "step was asked of a graph that was not built to run stepwise");
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { bench_.stepwise(2, 3).forward(bench_.weights(), {}); }),
            "forward was asked of a graph that was built to run stepwise; call step");
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { bench_.stepwise(2, 3).find_non_finite(bench_.weights(), {}); }),
            "find_non_finite was asked of a graph that was built to run stepwise; call step");
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { bench_.stepwise(2, 3).make_sequences(0); }),
            "memory of 0 sequences was asked for; expected 1 or more");
  const std::string large =
      error_of(ErrorKind::kConfig, [&] { bench_.stepwise(2, 3).make_sequences(std::int64_t{1} << 40); });
  EXPECT_EQ(large.find("1099511627776 sequences of 19 positions take "), 0) << large;
  EXPECT_NE(large.find("; keep fewer sequences at a time"), std::string::npos) << large;
  GraphSpec trained = bench_.graph();
  trained.nodes.back() = {"lm_head",
                          "head_cross_entropy",
                          {trained.nodes.back().inputs[0], "targets"},
                          {{"vocabulary", kVocabulary}, {"weight", std::string("transformer.wte.weight")}}};
  ExecutorSpec training = bench_.spec(2, kContext);
  training.training = true, training.only_kept = false;
  EXPECT_EQ(error_of(ErrorKind::kRun, [&] { Executor executor(training, trained, bench_.data(3)); }),
            "a graph for training was asked to run stepwise on sequences of 19 positions; expected one for "
            "evaluation, and at least 1 position");
}

TEST_F(StepRefusals, MorePositionsThanTheModelKnows) {
  const ExecutorSpec spec = bench_.spec(1, kContext + 1);
  EXPECT_EQ(
      error_of(ErrorKind::kConfig, [&] { Executor executor(spec, bench_.graph(), bench_.data(3)); }),
      "layer 'transformer.wpe': expected sequences of at most 19 positions (option 'context'), found 20");
}

TEST_F(StepRefusals, LayersThatOfferNeitherAbility) {
  GraphSpec graph = bench_.graph();
  graph.nodes.push_back({"flat", "flatten", {"lm_head"}, {}});
  graph.nodes.push_back({"again", "linear", {"flat"}, {{"features", std::int64_t{2}}}});
  ExecutorSpec spec = bench_.spec(1, kContext);
  EXPECT_EQ(
      error_of(ErrorKind::kConfig,
               [&] {
                 spec.keep = {"again"};
                 Executor executor(spec, graph, bench_.data(3));
               }),
      "the model cannot run position by position, which generation needs: 2 of its layers offer neither "
      "tenon.layer.positionwise/1 nor tenon.layer.stepwise/1: 'flat' (flatten), 'again' (linear); replace "
      "them by layers that do, or give them one of the two (<tenon/stepwise.hpp>)");
  spec.keep = {"lm_head"};
  EXPECT_EQ(error_of(ErrorKind::kConfig, [&] { Executor executor(spec, graph, bench_.data(3)); }), "")
      << "layers that do not run are not asked";
}

/// Keeps a number of bytes that there is not.
class Negative final : public Layer, public StepwiseLayer {
 public:
  void infer(InferContext& context) override { context.output(context.input(0)); }
  void forward(ForwardContext&) override {}
  void backward(BackwardContext&) override {}
  std::int64_t infer_step(InferContext&, std::int64_t positions) override { return -positions; }
  void step(ForwardContext&, const Steps&) override {}
  void* query(std::string_view id) override {
    return id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }
};

class WithNegative final : public LayerFactory {
 public:
  explicit WithNegative(LayerFactory& others) : others_(others) {}
  std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
    if (node.type == "negative") return std::make_unique<Owner>();
    return others_.create(node);
  }

 private:
  struct Owner final : LayerOwner {
    Layer& layer() override { return negative; }
    Negative negative;
  };
  LayerFactory& others_;
};

TEST_F(StepRefusals, DataWithoutPositionsAndBytesBelowZero) {
  const auto words = [](const char* name, const char* field) {
    return NodeSpec{name, "embedding", {field}, {{"rows", std::int64_t{5}}, {"width", std::int64_t{2}}}};
  };
  ExecutorSpec spec = bench_.spec(2, kContext);
  WithNegative layers(*spec.layers);
  spec.layers = &layers, spec.keep = {}, spec.only_kept = false;
  const auto built = [&](ErrorKind kind, NodeList nodes, std::vector<DataField> fields) {
    DataInfo data;
    data.fields = std::move(fields);
    return error_of(kind, [&] { Executor executor(spec, GraphSpec{std::move(nodes)}, data); });
  };
  const DataField id{"id", DType::kI32, {}}, some{"some", DType::kI32, {3}}, more{"more", DType::kI32, {4}};
  EXPECT_EQ(
      built(ErrorKind::kConfig, {words("a", "id")}, {id}),
      "data field 'id' has one number per sample, and a graph that runs stepwise needs one per position: "
      "expected [batch, time, ...], found [2]");
  EXPECT_EQ(
      built(ErrorKind::kConfig, {words("a", "some"), words("b", "more")}, {some, more}),
      "data fields 'some' [2, 3] and 'more' [2, 4] differ in the positions of a pass, which a graph that "
      "runs stepwise counts along the second extent");
  EXPECT_EQ(built(ErrorKind::kConfig, {}, {some}),
            "a graph that runs stepwise reads data, and this one reads none");
  EXPECT_EQ(built(ErrorKind::kConfig, {words("a", "some")}, {some, more, id}), "")
      << "the others are not read";
  EXPECT_EQ(built(ErrorKind::kPlugin, {words("a", "some"), {"n", "negative", {"a"}, {}}}, {some}),
            "layer 'n': infer_step() returned -19 bytes of a sequence; expected 0 or more");
}

}  // namespace
}  // namespace tenon::testing::refusals_test
