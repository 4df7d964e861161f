// The component minitron: what it describes and writes, scores that are drawn or read, and what its options
// refuse.
#include "importance_file.hpp"
#include "testing_decoders.hpp"

#include <tenon/transform.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::minitron::minitron_test {
namespace {

using namespace testing_decoders;
using ::testing::HasSubstr;
using testing::MemoryWriter;

class MinitronTransform : public testing::FolderTest {
 protected:
  testing::Made<Transform> transform(const std::string& options) {
    return testing::make<Transform>(decoders_.bench.registry, decoders_.bench.host, "minitron", options);
  }
  MemoryWriter result(const std::string& options, StoredModel& source) {
    const auto made = transform(options);
    StoredModel* const sources[] = {&source};
    MemoryWriter out = testing::transformed(*made, sources);
    EXPECT_EQ(out.incomplete(), "");
    return out;
  }
  std::string refusal(const std::string& options, StoredModel& source) {
    return testing::error_of([&] { result(options, source); });
  }

  Decoders decoders_;
  std::unique_ptr<MemoryModel> model_ = decoders_.recorded_model(twin("hybrid"));
};

constexpr const char* kTargets = "width = 8\nhidden = 6\nheads = 2\nmamba_heads = 2\n";

TEST_F(MinitronTransform, WithoutTargetsNothingChanges) {
  const MemoryWriter out = result("", *model_);
  ASSERT_EQ(out.tensors().size(), model_->parameters().size());
  for (const StoredTensor& tensor : model_->parameters())
    EXPECT_EQ(out.bytes(tensor.name), model_->bytes(tensor.name)) << tensor.name;
}

TEST_F(MinitronTransform, DrawnScoresDependOnTheSeedAlone) {
  const std::string options = std::string(kTargets) + "rank = 'random'\nseed = ";
  const MemoryWriter one = result(options + "1", *model_), again = result(options + "1", *model_),
                     other = result(options + "2", *model_);
  EXPECT_EQ(one.tensors(), again.tensors());
  EXPECT_EQ(one.files(), again.files());
  EXPECT_NE(one.tensors(), other.tensors());
}

TEST_F(MinitronTransform, AnEarlierImportanceIsTaken) {
  const MemoryWriter drawn = result(std::string(kTargets) + "keep_layers = 5\nrank = 'random'", *model_);
  const std::string path = write("importance.safetensors", drawn.files().at("importance.safetensors"));
  const std::string options = "importance = '" + path + "'\n";
  const MemoryWriter read = result(std::string(kTargets) + "keep_layers = 5\n" + options, *model_);
  EXPECT_EQ(read.tensors(), drawn.tensors());
  EXPECT_THAT(refusal("keep_layers = 5\ndepth = 'loss'\n" + options, *model_),
              HasSubstr("the importance has no scores of layers by depth = \"loss\""));
  const auto llama = decoders_.recorded_model(twin("llama"));
  EXPECT_THAT(refusal("hidden = 6\n" + options, *llama),
              HasSubstr("10 scores for neurons of layer 1, and the model has 14"));
}

TEST_F(MinitronTransform, ResultIsASourceAndItsFilesAreDrawings) {
  const MemoryWriter out = result(std::string(kTargets) + "rank = 'random'", *model_);
  for (const char* axis : {"width", "hidden", "heads", "mamba_heads", "mamba_head_width", "depth_bi"}) {
    const std::string& drawing = out.files().at(fmt::format("importance_{}.svg", axis));
    EXPECT_THAT(drawing, ::testing::AllOf(HasSubstr("<svg "), HasSubstr("stays"), HasSubstr("</svg>")))
        << axis;
  }
  MemoryModel small = out.model();
  small.set_graph(decoders_.graph([&] {
    Value table = small.description().model;
    table.erase("type");
    return to_toml(table, false);
  }()));
  EXPECT_EQ(read_shape(small).width, 8);
  const MemoryWriter smaller = result("hidden = 3\nrank = 'random'", small);
  EXPECT_EQ(smaller.model().description().model.find("hidden")->integer(), 3);
}

TEST_F(MinitronTransform, OptionsThatSayTwoThingsAreRefused) {
  EXPECT_THAT(refusal("width = 8", *model_), HasSubstr("nothing says what is important"));
  EXPECT_THAT(refusal("keep_layers = 4", *model_), HasSubstr("nothing says what is important"));
  EXPECT_THAT(refusal("width = 8\nrank = 'random'\nimportance = '/x'", *model_),
              HasSubstr("expected one of them"));
  EXPECT_THAT(refusal("iterative = true", *model_), HasSubstr("expected depth = \"loss\" or \"logit_mse\""));
  const auto made = transform("");
  StoredModel* const two[] = {model_.get(), model_.get()};
  EXPECT_EQ(testing::error_of([&] { made->describe(two); }),
            "transform minitron takes one model, found 2; name one folder in `from`");
}

}  // namespace
}  // namespace tenon::minitron::minitron_test
