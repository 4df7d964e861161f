// Refusals by both models of data and options that cannot work.
#include "training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

TEST(VisionModels, RefuseWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  DataInfo text;
  text.fields = {{"tokens", DType::kI32, {8}}};
  DataInfo flat = image_data({784}, 10), numbers = image_data({1, 28, 28}, 10),
           many = image_data({1, 28, 28}, 10), no_classes = image_data({1, 28, 28}, 10);
  numbers.fields[0].dtype = DType::kI32;
  many.fields[1].shape = {2};
  no_classes.attributes.clear();
  const struct {
    const char *model, *options;
    DataInfo data;
    const char* says;
  } cases[] = {
      {"lenet5", "", text,
       "model lenet5 needs a data field 'image', the data offers: tokens; set model option 'image' to one of "
       "them, or "
       "choose a [data] type of images"},
      {"resnet", "image = \"tokens\"", text,
       "model resnet: data field 'tokens' must be real [channels, height, width], found i32 [8]"},
      {"lenet5", "", flat, "must be real [channels, height, width], found f32 [784]"},
      {"resnet", "", numbers, "must be real [channels, height, width], found i32 [1, 28, 28]"},
      {"lenet5", "", many, "data field 'label' must be one i32 per sample, found i32 [2]"},
      {"lenet5", "label = \"image\"", image_data({1, 28, 28}, 10),
       "must be one i32 per sample, found f32 [1, 28, 28]"},
      {"resnet", "", no_classes, "option 'classes' must cover the data's 0 classes, found 0"},
      {"lenet5", "classes = 9", image_data({1, 28, 28}, 10), "must cover the data's 10 classes, found 9"},
      {"lenet5", "", image_data({3, 30, 30}, 10),
       "model lenet5 takes images of 28 x 28 or 32 x 32, the data field 'image' has [3, 30, 30]"},
      {"lenet5", "activation = \"step\"", image_data({1, 28, 28}, 10), "activation"},
      {"resnet", "depth = 50", image_data({3, 32, 32}, 10), "model resnet: depth is 18 or 34, found 50"},
  };
  for (const auto& c : cases) {
    try {
      bench.make_component<Model>(c.model, c.options)->build(c.data);
      ADD_FAILURE() << "accepted; expected an error that says: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(c.says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing
