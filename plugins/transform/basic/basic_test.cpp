// identity, untie, merge and cast on models in memory: bytes, exact arithmetic, rounding and mixes against
// PyTorch and NumPy, tensors larger than a slice, and what is refused.
#include "common.hpp"

#include "reference/recorded.hpp"

#include <tenon/model.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/testing/stored_models.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tenon::transform_basic {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::make;
using testing::MemoryModel;
using testing::MemoryWriter;
using testing::Recorded;
using testing::transformed;

class BasicTransforms : public ::testing::Test {
 protected:
  void SetUp() override { registry_.discover({}); }

  testing::Made<Transform> transform(std::string_view type, std::string_view toml = "") {
    return make<Transform>(registry_, host_, type, toml);
  }
  static MemoryWriter result(const testing::Made<Transform>& made, std::vector<StoredModel*> sources) {
    MemoryWriter out = transformed(*made, sources);
    EXPECT_EQ(out.incomplete(), "");
    return out;
  }
  /// The text of the Error(kConfig) of describe().
  static std::string refusal(const testing::Made<Transform>& made, std::vector<StoredModel*> sources) {
    return testing::error_of([&] { made->describe(sources); });
  }

  Registry registry_;
  testing::QuietHost host_;
};

std::vector<float> normals(std::uint64_t seed, std::size_t count) {
  const RandomKey key = random_key(seed, "transforms");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random_normal(key, 0, i));
  return values;
}

/// Tensors of several types and ranks. `seed` sets the weights alone.
MemoryModel small_model(std::uint64_t seed, std::string folder = "runs/a/1") {
  MemoryModel model("type = \"mlp\"\nhidden = [6]", std::move(folder));
  model.add("b.weight", DType::kF32, Shape{6, 4}, normals(seed, 24));
  model.add("a.scale", DType::kF32, Shape{}, normals(seed + 100, 1));
  model.add("c.count", DType::kI64, Shape{2}, std::vector<std::int64_t>{3, 1LL << 62});
  model.add("d.modes", DType::kC64, Shape{3}, normals(seed + 200, 6));
  model.add("e.empty", DType::kF32, Shape{0, 5}, std::vector<float>{});
  model.add("f.double", DType::kF64, Shape{2}, std::vector<double>{0.1 * static_cast<double>(seed), -1e-300});
  return model;
}

void expect_same_tensors(const MemoryModel& expected, const MemoryWriter& found) {
  EXPECT_EQ(found.tensors().size(), expected.parameters().size());
  for (const StoredTensor& tensor : expected.parameters())
    EXPECT_EQ(found.bytes(tensor.name), expected.bytes(tensor.name)) << tensor.name;
}

TEST(StoredSlices, CoverEveryElementOnceAndInOrder) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{0, 3}, Shape{3, 0}, Shape{5, 7},
                             Shape{2, 3, 4}, Shape{1, 1, 9}, Shape{4, 1, 5, 3}}) {
    for (const std::int64_t most : {1, 2, 3, 5, 7, 12, 35, 1000}) {
      std::int64_t next = 0;
      for_each_slice(shape, most, [&](const Shape& offset, const Shape& extents) {
        EXPECT_LE(extents.elements(), most);
        // First and last element by their places in the memory of the whole.
        std::int64_t first = 0, last = 0;
        for (int dim = 0; dim < shape.rank(); ++dim) {
          first = first * shape[dim] + offset[dim];
          last = last * shape[dim] + offset[dim] + extents[dim] - 1;
        }
        EXPECT_EQ(first, next) << shape.text() << " by " << most;
        EXPECT_EQ(last, next + extents.elements() - 1) << shape.text() << " by " << most;
        next += extents.elements();
      });
      EXPECT_EQ(next, shape.elements()) << shape.text() << " by " << most;
    }
  }
}

TEST_F(BasicTransforms, IdentityGivesEveryByte) {
  MemoryModel model = small_model(1);
  model.describe().attributes.push_back({"vocabulary", 61});
  const auto made = transform("identity");
  expect_same_tensors(model, result(made, {&model}));
  StoredModel* const sources[] = {&model};
  const TransformedModel described = made->describe(sources);
  EXPECT_TRUE(described.description.model == model.description().model);
  EXPECT_EQ(described.description.attributes[0].value, 61);
}

TEST_F(BasicTransforms, LargeTensorsComeInSlicesAndInOrder) {
  const std::int64_t rows = 2 * kSliceElements / 1000 + 3;
  MemoryModel model("type = \"mlp\"");
  std::vector<float> values(static_cast<std::size_t>(rows * 1000));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  model.add("w", DType::kF32, Shape{rows, 1000}, values);
  const struct {
    const char *type, *options;
    int sources;
  } cases[] = {{"identity", "", 1}, {"cast", "dtype = 'f32'", 1}, {"merge", "weights = [1, 2]", 2}};
  for (const auto& [type, options, count] : cases) {
    const auto made = transform(type, options);
    const MemoryWriter out = result(made, std::vector<StoredModel*>(count, &model));
    EXPECT_EQ(out.bytes("w"), bytes_of(values)) << type;
    EXPECT_LE(out.largest_piece(), kSliceElements) << type;
  }
  EXPECT_LE(model.largest_read(), kSliceElements);
}

TEST_F(BasicTransforms, ASingleSourceIsTaken) {
  MemoryModel model = small_model(1);
  for (const char* type : {"identity", "untie", "cast"}) {
    const auto made = transform(type, std::string_view(type) == "cast" ? "dtype = 'bf16'" : "");
    EXPECT_EQ(refusal(made, {&model, &model}),
              fmt::format("transform {} takes one model, found 2; name one folder in `from`", type));
    EXPECT_THAT(refusal(made, {}), HasSubstr("takes one model, found 0"));
  }
}

// cast

TEST(Rounding, AgreesWithPyTorchNumPyAndExactFractions) {
  const Recorded recorded("transforms");
  const std::vector<double> values = recorded.values("values");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::string name(dtype_name(dtype));
    std::vector<std::byte> memory(dtype_bytes(dtype, static_cast<std::int64_t>(values.size())));
    const TensorView view{memory.data(), Shape{static_cast<std::int64_t>(values.size())}, dtype,
                          MemorySpace::kHost};
    store(values, view);
    const std::vector<double> expected = recorded.values("values." + name);
    std::size_t i = 0;
    for_each_real(view, [&](double stored) {
      const double bits = dtype == DType::kF32 ? view.as<std::uint32_t>()[i] : view.as<std::uint16_t>()[i];
      ASSERT_EQ(bits, expected[i]) << name << " of " << values[i];
      ASSERT_EQ(rounded(values[i], dtype), stored) << name << " of " << values[i];
      ++i;
    });
  }
}

TEST_F(BasicTransforms, CastRoundsAndGoesBackExactly) {
  MemoryModel model = small_model(2);
  const MemoryWriter narrow = result(transform("cast", "dtype = 'bf16'"), {&model});
  EXPECT_EQ(narrow.bytes("b.weight").size(), 48U);
  EXPECT_EQ(narrow.bytes("d.modes"), model.bytes("d.modes"));
  EXPECT_EQ(narrow.bytes("c.count"), model.bytes("c.count"));
  MemoryModel middle = narrow.model();
  const MemoryWriter back = result(transform("cast", "dtype = 'f32'"), {&middle});
  const MemoryWriter at_once = result(transform("cast", "dtype = 'f32'\nthrough = 'bf16'"), {&model});
  EXPECT_EQ(back.tensors(), at_once.tensors());
  EXPECT_NE(back.bytes("b.weight"), model.bytes("b.weight"));
  MemoryModel rounded_once = back.model();
  const MemoryWriter again = result(transform("cast", "dtype = 'bf16'"), {&rounded_once});
  EXPECT_EQ(again.tensors(), narrow.tensors());
}

TEST_F(BasicTransforms, CastToTheSameTypeIsTheIdentity) {
  MemoryModel model("type = \"mlp\"");
  const float infinity = std::numeric_limits<float>::infinity();
  model.add("w", DType::kF32, Shape{5}, std::vector<float>{-0.0F, 1e-45F, infinity, -infinity, 0.1F});
  expect_same_tensors(model, result(transform("cast", "dtype = 'f32'"), {&model}));
}

TEST_F(BasicTransforms, CastRefusesWhatTheTypeCannotHold) {
  MemoryModel model("type = \"mlp\"");
  model.add("w", DType::kF32, Shape{3}, std::vector<float>{1, 65519, 65520});
  const struct {
    const char* options;
    const char* type;
  } cases[] = {{"dtype = 'f16'", "f16"}, {"dtype = 'f32'\nthrough = 'f16'", "f16"}};
  for (const auto& [options, type] : cases) {
    const auto made = transform("cast", options);
    EXPECT_EQ(testing::error_of([&] { result(made, {&model}); }, ErrorKind::kRun),
              fmt::format("transform cast: element 2 of 'w' is 65520, which {} cannot hold; choose a type of "
                          "larger range, bf16 or f32",
                          type));
  }
}

// merge

TEST_F(BasicTransforms, MergeAgreesWithSumsInFloat64) {
  const Recorded recorded("transforms");
  const struct {
    DType dtype;
    const char* name;
  } types[] = {{DType::kF32, "f32"}, {DType::kBF16, "bf16"}, {DType::kF16, "f16"}};
  for (const auto& [dtype, name] : types) {
    std::vector<MemoryModel> models;
    for (int i = 0; i < 3; ++i) {
      const std::vector<double> values = recorded.values(fmt::format("merge.{}.{}", name, i));
      std::vector<std::byte> bytes(dtype_bytes(dtype, 77));
      store(values, {bytes.data(), Shape{77}, dtype, MemorySpace::kHost});
      models.emplace_back("type = \"mlp\"").add("w", dtype, Shape{7, 11}, std::move(bytes));
    }
    for (const auto& [mix, options] :
         {std::pair{"weighted", "weights = [3, 1, 0.5]"}, std::pair{"equal", ""}}) {
      const MemoryWriter out = result(transform("merge", options), {&models[0], &models[1], &models[2]});
      const std::vector<double> expected = recorded.values(fmt::format("merge.{}.{}", name, mix));
      const std::byte* const found = out.bytes("w").data();
      for (std::size_t i = 0; i < 77; ++i) {
        const double bits = dtype == DType::kF32 ? reinterpret_cast<const std::uint32_t*>(found)[i]
                                                 : reinterpret_cast<const std::uint16_t*>(found)[i];
        ASSERT_EQ(bits, expected[i]) << name << " " << mix << " " << i;
      }
    }
  }
}

TEST_F(BasicTransforms, AMixOfAModelWithItselfIsThatModelToTheBit) {
  MemoryModel model = small_model(3);
  model.add("g.special", DType::kF32, Shape{4},
            std::vector<float>{-0.0F, 1e-45F, std::numeric_limits<float>::infinity(), 3.4e38F});
  for (const char* options : {"", "weights = [0.3, 0.7, 1e-3]", "weights = [1e300, 1, 1]"})
    expect_same_tensors(model, result(transform("merge", options), {&model, &model, &model}));
}

TEST_F(BasicTransforms, WeightsAreSharesOfTheirSumInTheOrderOfTheSources) {
  MemoryModel a("type = \"mlp\""), b("type = \"mlp\"");
  a.add("w", DType::kF32, Shape{2}, std::vector<float>{8, -4});
  b.add("w", DType::kF32, Shape{2}, std::vector<float>{16, 4});
  // (3 * 8 + 1 * 16) / 4 and (3 * -4 + 1 * 4) / 4, exactly.
  EXPECT_EQ(result(transform("merge", "weights = [3, 1]"), {&a, &b}).bytes("w"),
            bytes_of(std::vector<float>{10, -2}));
  EXPECT_EQ(result(transform("merge", "weights = [0.75, 0.25]"), {&a, &b}).bytes("w"),
            bytes_of(std::vector<float>{10, -2}));
  EXPECT_EQ(result(transform("merge"), {&a, &b}).bytes("w"), bytes_of(std::vector<float>{12, 0}));
}

TEST_F(BasicTransforms, ASourceOfWeightZeroAddsNothing) {
  MemoryModel a("type = \"mlp\""), b("type = \"mlp\"");
  a.add("w", DType::kF32, Shape{2}, std::vector<float>{0.1F, 3});
  b.add("w", DType::kF32, Shape{2}, std::vector<float>{std::nanf(""), 7});
  EXPECT_EQ(result(transform("merge", "weights = [2, 0]"), {&a, &b}).bytes("w"), a.bytes("w"));
}

TEST_F(BasicTransforms, MergeListsEveryDifference) {
  MemoryModel a("type = \"mlp\"\nhidden = [6]", "runs/a/1"), b("type = \"mlp\"\nhidden = [7]", "runs/b/1");
  a.describe().attributes = {{"vocabulary", 61}, {"val_tokens", 9}};
  b.describe().attributes = {{"vocabulary", 64}};
  a.add("h.weight", DType::kF32, Shape{6, 4}, normals(1, 24));
  b.add("h.weight", DType::kF32, Shape{7, 4}, normals(1, 28));
  a.add("only.a", DType::kF32, Shape{1}, normals(1, 1));
  b.add("only.b", DType::kF32, Shape{1}, normals(1, 1));
  a.add("type", DType::kF32, Shape{1}, normals(1, 1));
  b.add("type", DType::kF64, Shape{1}, std::vector<double>{1});
  EXPECT_EQ(refusal(transform("merge"), {&a, &b}),
            "transform merge mixes models of equal parameters and options, found 6 differences:\n"
            "  [model] hidden: [6] in runs/a/1, [7] in runs/b/1\n"
            "  vocabulary of the data: 61 in runs/a/1, 64 in runs/b/1\n"
            "  h.weight: f32 [6, 4] in runs/a/1, f32 [7, 4] in runs/b/1\n"
            "  only.a: in runs/a/1, not in runs/b/1\n"
            "  type: f32 [1] in runs/a/1, f64 [1] in runs/b/1\n"
            "  only.b: in runs/b/1, not in runs/a/1");
}

TEST_F(BasicTransforms, MergeRefusesItsBadInput) {
  MemoryModel a = small_model(1), b = small_model(1, "runs/b/1");
  EXPECT_EQ(refusal(transform("merge"), {&a}),
            "transform merge mixes two models or more, found 1; name several folders in `from`, or several "
            "steps of "
            "one in `step`");
  EXPECT_EQ(refusal(transform("merge", "weights = [1, 2, 3]"), {&a, &b}),
            "transform merge: option 'weights' has 3 numbers, expected one for each of the 2 models");
  for (const char* weights :
       {"weights = [0, 0]", "weights = [inf, 1]", "weights = [nan, 1]", "weights = [-1, 2]"})
    EXPECT_THROW(transform("merge", weights), Error) << weights;
  MemoryModel c = small_model(1, "runs/c/1");
  MemoryModel d("type = \"mlp\"\nhidden = [6]", "runs/d/1");
  for (const StoredTensor& tensor : c.parameters())
    d.add(tensor.name, tensor.dtype, tensor.shape,
          tensor.name == "c.count" ? bytes_of(std::vector<std::int64_t>{3, 4}) : c.bytes(tensor.name));
  EXPECT_THAT(testing::error_of(
                  [&] {
                    result(transform("merge"), {&c, &d});
                  },
                  ErrorKind::kRun),
              HasSubstr("'c.count' is i64, which has no mean, and differs between runs/c/1 and runs/d/1"));
}

// untie

/// The model that the option `tied` of a decoder describes: an embedding, a head that reads it.
MemoryModel tied_decoder() {
  MemoryModel model("type = \"decoder\"\ntied = true\nwidth = 4", "models/tiny");
  model.add("model.embed_tokens.weight", DType::kF32, Shape{5, 4}, normals(7, 20));
  model.add("model.norm.weight", DType::kF32, Shape{4}, normals(8, 4));
  model.set_graph({NodeList{{"model.embed_tokens", "embedding", {"tokens"}, {{"rows", std::int64_t{5}}}},
                            {"model.norm", "rms_norm", {"model.embed_tokens"}, {}},
                            {"lm_head",
                             "head_cross_entropy",
                             {"model.norm", "targets"},
                             {{"weight", std::string("model.embed_tokens.weight")}}}}});
  return model;
}

TEST_F(BasicTransforms, UntieGivesTheHeadTheValuesOfTheEmbedding) {
  MemoryModel model = tied_decoder();
  const auto made = transform("untie");
  StoredModel* const sources[] = {&model};
  const TransformedModel described = made->describe(sources);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : described.parameters) names.push_back(tensor.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"}));
  EXPECT_EQ(described.parameters[0].shape, (Shape{5, 4}));
  EXPECT_FALSE(described.description.model.find("tied")->boolean());
  EXPECT_EQ(described.description.model.find("override"), nullptr);
  EXPECT_TRUE(model.description().model.find("tied")->boolean());  // the source is as it was
  const MemoryWriter out = result(made, {&model});
  EXPECT_EQ(out.bytes("lm_head.weight"), model.bytes("model.embed_tokens.weight"));
  EXPECT_EQ(out.bytes("model.embed_tokens.weight"), model.bytes("model.embed_tokens.weight"));
  EXPECT_EQ(out.bytes("model.norm.weight"), model.bytes("model.norm.weight"));
}

TEST_F(BasicTransforms, UntieFindsTheHeadsOfTheShippedModels) {
  const struct {
    const char *type, *options, *shared, *key, *value;
  } cases[] = {{"gpt_neo", "layers = 1\nwidth = 4\nheads = 2", "transformer.wte.weight", "override",
                "[{match = \"lm_head\", weight = \"lm_head.weight\"}]"},
               {"decoder", "pattern = '*-'\nwidth = 4\nheads = 2\nhidden = 4\ntied = true",
                "model.embed_tokens.weight", "tied", "false"}};
  DataInfo data;
  for (const char* name : {"tokens", "targets"}) data.fields.push_back({name, DType::kI32, Shape{3}});
  data.attributes = {{"vocabulary", 5}};
  for (const auto& c : cases) {
    MemoryModel model(fmt::format("type = \"{}\"\n{}", c.type, c.options), "runs/g/1");
    model.add(c.shared, DType::kF32, Shape{5, 4}, normals(7, 20));
    model.set_graph(make<Model>(registry_, host_, c.type, c.options)->build(data));
    StoredModel* const sources[] = {&model};
    const TransformedModel described = transform("untie")->describe(sources);
    const Value* found = described.description.model.find(c.key);
    ASSERT_NE(found, nullptr) << c.type;
    EXPECT_EQ(found->inline_toml(), c.value) << c.type;
    EXPECT_EQ(result(transform("untie"), {&model}).bytes("lm_head.weight"), model.bytes(c.shared)) << c.type;
  }
}

TEST_F(BasicTransforms, UntieSaysWhatItCannotUntie) {
  MemoryModel none = small_model(1);
  none.refuse_graph("model mlp needs a data field 'x'");
  EXPECT_EQ(
      refusal(transform("untie"), {&none}),
      "transform untie: model mlp of runs/a/1 gives no graph for tokens and targets, so it has no head to "
      "untie: model mlp needs a data field 'x'");
  MemoryModel apart = tied_decoder();
  apart.set_graph({NodeList{{"model.embed_tokens", "embedding", {"tokens"}, {}},
                            {"lm_head", "head_cross_entropy", {"model.embed_tokens", "targets"}, {}}}});
  EXPECT_EQ(refusal(transform("untie"), {&apart}),
            "transform untie: model decoder of models/tiny has no tied head: no node but embeddings has a "
            "weight of "
            "those of its embeddings (model.embed_tokens.weight)");
  MemoryModel taken = tied_decoder();
  taken.add("lm_head.weight", DType::kF32, Shape{1}, normals(1, 1));
  EXPECT_EQ(refusal(transform("untie"), {&taken}),
            "transform untie: models/tiny already has a parameter 'lm_head.weight'");
}

}  // namespace
}  // namespace tenon::transform_basic
