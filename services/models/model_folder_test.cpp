// Model folders: what is written reads back in any slices, and nothing that is incomplete, damaged or there
// already passes.
#include "models/model_folder.hpp"
#include "store/testing/memory_files.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::models {
namespace {

using ::testing::HasSubstr;

class NoHost final : public Host {
 public:
  void log(LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override { return nullptr; }
  double deadline() const override { return 1; }
  void* query(std::string_view) override { return nullptr; }
};

TensorView view_of(std::vector<float>& values, Shape shape, DType dtype = DType::kF32) {
  return {values.data(), shape, dtype, MemorySpace::kHost};
}

class ModelFolderTest : public ::testing::Test {
 protected:
  static TransformedModel model() {
    TransformedModel model;
    model.description.model = parse_value("{type = \"gpt_neo\", width = 4}", {});
    model.description.attributes = {{"vocabulary", 3}};
    model.parameters = {{"b", DType::kF32, {2, 3}}, {"a", DType::kF32, {4}}, {"c", DType::kC64, {1, 2}}};
    return model;
  }
  std::string write() {
    ModelFolderWriter writer(files_, "/m", model(), {{"transform", "identity"}});
    writer.write(view_of(b_, {2, 3}));
    writer.write(view_of(a_, {4}).rows(0, 1));
    writer.write(view_of(a_, {4}).rows(1, 4));
    writer.write(view_of(c_, {1, 2}, DType::kC64));
    return writer.finish();
  }
  ModelFolder open() { return {files_, registry_, host_, "/m"}; }

  std::vector<float> a_{1, 2, 3, 4}, b_{5, 6, 7, 8, 9, 10}, c_{11, 12, 13, 14};
  testing::MemoryFiles files_;
  Registry registry_;
  NoHost host_;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(ModelFolderTest, ReadsBackInAnySlices) {
  const std::string digest = write();
  ModelFolder read = open();
  EXPECT_EQ(read.digest(), digest);
  EXPECT_EQ(read.step(), -1);
  EXPECT_EQ(read.description().model.find("width")->integer(), 4);
  ASSERT_EQ(read.description().attributes.size(), 1u);
  EXPECT_EQ(read.description().attributes[0].value, 3);
  ASSERT_EQ(read.parameters().size(), 3u);
  EXPECT_EQ(read.parameters()[0].name, "a");
  EXPECT_EQ(read.parameters()[2].dtype, DType::kC64);
  EXPECT_EQ(read.parameters()[2].shape, (Shape{1, 2}));
  std::vector<float> slice(4);
  read.read("b", Shape{0, 1}, view_of(slice, {2, 2}));
  EXPECT_THAT(slice, ::testing::ElementsAre(6, 7, 9, 10));
  read.read("c", Shape{0, 0}, view_of(slice, {1, 2}, DType::kC64));
  EXPECT_THAT(slice, ::testing::ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(error_of([&] {
                read.read("b", Shape{1, 1}, view_of(slice, {2, 2}));
              }),
              HasSubstr("'b' is f32 [2, 3], which has no part f32 [2, 2] at [1, 1]"));
  EXPECT_THAT(error_of([&] { read.read("d", Shape{0}, view_of(slice, {4})); }), HasSubstr("no tensor 'd'"));
}

TEST_F(ModelFolderTest, IsWholeOrAbsent) {
  {
    ModelFolderWriter writer(files_, "/m", model(), {});
    writer.write(view_of(b_, {2, 3}));
    EXPECT_THAT(error_of([&] { writer.finish(); }), HasSubstr("16 bytes of tensor 'a' still to write"));
  }
  EXPECT_FALSE(is_model_folder(files_, "/m"));
  EXPECT_TRUE(files_.list("/").empty()) << "a partial folder is removed";
  write();
  EXPECT_THAT(error_of([&] { ModelFolderWriter(files_, "/m", model(), {}); }),
              HasSubstr("/m exists, and nothing is written over a model"));
}

TEST_F(ModelFolderTest, WhatWasNotDescribedIsThePluginsError) {
  ModelFolderWriter writer(files_, "/m", model(), {});
  EXPECT_THAT(error_of([&] {
                writer.write(view_of(c_, {1, 2}, DType::kC64));
              }),
              HasSubstr("writes c64 into tensor 'b', which it has described as f32"));
  writer.write(view_of(b_, {2, 3}).rows(0, 1));
  EXPECT_THAT(error_of([&] {
                writer.write(view_of(b_, {2, 3}));
              }),
              HasSubstr("12 bytes more into tensor 'b'"));
}

TEST_F(ModelFolderTest, DamageAndMissingPartsAreNamed) {
  write();
  const std::string toml = read_text(files_, "/m/model.toml", 1 << 20);
  const std::string weights = read_text(files_, "/m/model.safetensors", 1 << 20);
  std::string damaged = weights;
  damaged[damaged.size() - 3] ^= 4;
  files_.write_text_atomically("/m/model.safetensors", damaged);
  EXPECT_THAT(error_of([&] { open(); }),
              HasSubstr("/m: the weights are not those that model.toml was written for"));
  files_.write_text_atomically("/m/more.safetensors", weights);
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("tensor 'a' is in /m/model.safetensors as well"));
  files_.remove("/m/more.safetensors");
  files_.remove("/m/model.safetensors");
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("there is no *.safetensors beside model.toml"));
  files_.write_text_atomically("/m/model.toml", "format = 1\n");
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("/m/model.toml: 'weights_hash' is missing"));
  files_.write_text_atomically("/m/model.toml", "format = 2\n");
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("format 2 is unknown"));
  files_.remove("/m/model.toml");
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("is no model folder"));
}

}  // namespace
}  // namespace tenon::models
