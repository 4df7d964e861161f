// safetensors: bytes equal to the reference writer's, every invalid header refused by name, and no crash on
// thousands of damaged files.
#include "store/safetensors.hpp"

#include "store/testing/memory_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tenon::safetensors_test {
namespace {

using ::testing::HasSubstr;
using testing::MemoryFiles;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string written(std::span<const SafetensorsItem> items, const SafetensorsMetadata& metadata) {
  MemoryFiles files;
  write_safetensors(*files.create("/f"), items, metadata);
  return files.content("/f");
}

// An open file together with the file system that it lives in.
struct OwningFile final : ReadableFile {
  explicit OwningFile(const std::string& content) {
    files.create("/f");
    files.overwrite("/f", content);
    file = files.open("/f");
  }
  std::int64_t size() const override { return file->size(); }
  void read(std::int64_t offset, std::span<std::byte> out) const override { file->read(offset, out); }

  MemoryFiles files;
  std::unique_ptr<ReadableFile> file;
};

SafetensorsReader reader_of(const std::string& content) {
  return SafetensorsReader(std::make_unique<OwningFile>(content), "f.safetensors");
}

std::string message_of(const std::string& content) {
  try {
    reader_of(content);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string file_of(std::string json, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(json.size() >> (8 * i));
  return file + json + std::string(data_bytes, 'x');
}

// Header of the reference writer (Python package safetensors) for the tensors below.
const char kReferenceHeader[] =
    R"({"__metadata__":{"format":"tenon"},"a\"\né":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"F64","shape":[1],"data_offsets":[16,24]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[24,24]},)"
    R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},"s":{"dtype":"I32","shape":[],"data_offsets":[40,44]},)"
    R"("h":{"dtype":"F16","shape":[1],"data_offsets":[44,46]},"z":{"dtype":"U8","shape":[3],"data_offsets":[46,49]},)"
    R"("t":{"dtype":"BOOL","shape":[1],"data_offsets":[49,50]}}     )";

class Reference : public ::testing::Test {
 protected:
  std::vector<std::int64_t> a_{7, 8};
  std::vector<double> b_{5};
  std::vector<float> e_;
  std::vector<float> w_{1, 2, 3, 4};
  std::vector<std::int32_t> s_{9};
  std::vector<std::uint16_t> h_{0x3e00};
  std::vector<std::uint8_t> z_{1, 2, 3};
  std::vector<std::uint8_t> t_{1};
  std::vector<SafetensorsItem> items_{
      {"w", DType::kF32, Shape{2, 2}, bytes_of(w_)},   {"b", DType::kF64, Shape{1}, bytes_of(b_)},
      {"z", DType::kU8, Shape{3}, bytes_of(z_)},       {"h", DType::kF16, Shape{1}, bytes_of(h_)},
      {"a\"\né", DType::kI64, Shape{2}, bytes_of(a_)}, {"s", DType::kI32, Shape{}, bytes_of(s_)},
      {"e", DType::kF32, Shape{0, 3}, bytes_of(e_)},   {"t", DType::kBool, Shape{1}, bytes_of(t_)}};
  std::string content_ = written(items_, {{"format", "tenon"}});
};

TEST_F(Reference, WritesTheSameBytes) {
  std::string expected = file_of(kReferenceHeader, 0);
  for (const auto& data :
       {bytes_of(a_), bytes_of(b_), bytes_of(w_), bytes_of(s_), bytes_of(h_), bytes_of(z_), bytes_of(t_)}) {
    expected.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  EXPECT_EQ(content_, expected);
  EXPECT_EQ(content_.size(), 546u);
  EXPECT_EQ(written({}, {}), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST_F(Reference, ReadsSingleTensorsAndRanges) {
  const SafetensorsReader reader = reader_of(content_);
  EXPECT_EQ(reader.entries().size(), 8u);
  EXPECT_EQ(reader.entries()[0].name, "a\"\né");
  EXPECT_EQ(reader.metadata().at("format"), "tenon");
  const SafetensorsEntry& w = reader.at("w");
  EXPECT_EQ(w.dtype, DType::kF32);
  EXPECT_EQ(w.shape, (std::vector<std::int64_t>{2, 2}));
  std::vector<float> row(2);
  reader.read(w, 8, std::as_writable_bytes(std::span(row)));
  EXPECT_EQ(row, (std::vector<float>{3, 4}));
  EXPECT_THAT(reader.read_all(reader.at("z")),
              ::testing::ElementsAre(std::byte{1}, std::byte{2}, std::byte{3}));
  EXPECT_EQ(reader.find("absent"), nullptr);
  EXPECT_THROW(reader.at("absent"), Error);
  EXPECT_THROW(reader.read(w, 9, std::as_writable_bytes(std::span(row))), Error);
  EXPECT_THROW(reader.read(w, -1, std::as_writable_bytes(std::span(row))), Error);
}

TEST(Safetensors, ComplexHasALastDimensionOfTwo) {
  const std::vector<float> values{1, -2, 3, -4};
  const std::vector<double> wide{1, 2};
  const SafetensorsItem items[] = {{"c", DType::kC64, Shape{2}, bytes_of(values)},
                                   {"d", DType::kC128, Shape{}, bytes_of(wide)}};
  const SafetensorsReader reader = reader_of(written(items, {}));
  EXPECT_EQ(reader.at("c").file_dtype, "F32");
  EXPECT_EQ(reader.at("c").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(reader.at("d").file_dtype, "F64");
  EXPECT_EQ(reader.at("d").shape, (std::vector<std::int64_t>{2}));
}

TEST(Safetensors, EveryTypeSurvivesARoundTrip) {
  std::vector<SafetensorsItem> items;
  std::vector<std::vector<std::uint8_t>> data;
  for (int i = 0; i <= static_cast<int>(DType::kF6E3M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    data.emplace_back(static_cast<std::size_t>(dtype_bytes(dtype, 24)), static_cast<std::uint8_t>(i));
    items.push_back({std::string(dtype_name(dtype)), dtype, Shape{3, 8}, {}});
  }
  for (std::size_t i = 0; i < items.size(); ++i) items[i].data = bytes_of(data[i]);
  const SafetensorsReader reader = reader_of(written(items, {}));
  for (const SafetensorsItem& item : items) {
    const SafetensorsEntry& entry = reader.at(item.name);
    EXPECT_TRUE(std::ranges::equal(reader.read_all(entry), item.data)) << item.name;
    if (!dtype_is_complex(item.dtype)) {
      EXPECT_EQ(entry.dtype, item.dtype) << item.name;
    }
  }
}

TEST(Safetensors, WriterRefusesWhatReadersWould) {
  const std::vector<std::uint8_t> data(3);
  const std::pair<SafetensorsItem, const char*> cases[] = {
      {{"x", DType::kF4E2M1, Shape{5}, bytes_of(data)}, "does not end on a byte"},
      {{"x", DType::kU8, Shape{4}, bytes_of(data)}, "needs 4 bytes, got 3"},
      {{"__metadata__", DType::kU8, Shape{3}, bytes_of(data)}, "cannot be named"},
      {{"\xff", DType::kU8, Shape{3}, bytes_of(data)}, "UTF-8"},
  };
  for (const auto& [item, expected] : cases) {
    try {
      plan_safetensors({&item, 1}, {});
      FAIL() << expected;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected));
    }
  }
  const SafetensorsItem twice[] = {{"x", DType::kU8, Shape{3}, bytes_of(data)},
                                   {"x", DType::kI8, Shape{3}, bytes_of(data)}};
  EXPECT_THROW(plan_safetensors(twice, {}), Error);
}

TEST(Safetensors, ReaderRefusesInvalidFilesByName) {
  struct Case {
    std::string content;
    const char* expected;
  };
  const std::string good = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  const Case cases[] = {
      {file_of(good, 2), "accepted"},
      {file_of(good + "    ", 2), "accepted"},
      {file_of("{}", 0), "accepted"},
      {file_of(R"({"a":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[0,2]}})", 2), "accepted"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
           2),
       "accepted"},
      {"", "at least 8 bytes, found 0"},
      {std::string(8, '\xff'), "over the limit of 100000000"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), "header length 100000001 is over the limit"},
      {std::string("\x09\0\0\0\0\0\0\0{}", 10), "header of 9 bytes in a file of 10"},
      {file_of(" {}", 0), "must begin with '{'"},
      {file_of("[]", 0), "must begin with '{'"},
      {file_of("{", 0), "not valid JSON"},
      {file_of("{}x", 0), "not valid JSON"},
      {file_of("{\"a\xff\":1}", 0), "not valid JSON"},
      {file_of(good, 3), "take 2 bytes, the file holds 3"},
      {file_of(good, 1), "take 2 bytes, the file holds 1"},
      {file_of(R"({"a":1})", 0), "unexpected the number 1 in the header"},
      {file_of(R"({"a":null})", 0), "unexpected null"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2]}})", 2), "lacks dtype, shape or data_offsets"},
      {file_of(R"({"a":{"dtype":"Q3","shape":[2],"data_offsets":[0,2]}})", 2), "unknown dtype 'Q3'"},
      {file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "does not end on a byte"},
      {file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", 2),
       "need 3 bytes, data_offsets give 2"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2), "ascending"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1,2]}})", 2), "must be two"},
      {file_of(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", 2),
       "unexpected the number -2 in 'shape'"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", 2), "unexpected the number 2.0"},
      {file_of(R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", 2), "unexpected an array"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}})", 2), "unknown field 'x'"},
      {file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "overflows"},
      {file_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2]}})", 2),
       "out of range"},
      {file_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 2),
       "duplicate key 'dtype'"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           4),
       "duplicate key 'a'"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "inside the previous"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "with a hole"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "unexpected the number 1 in __metadata__"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "duplicate key 'a' in __metadata__"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "duplicate key '__metadata__'"},
      {file_of("{\"a\":" + std::string(100'000, '{'), 0), "JSON"},
      {file_of("{\"a\":" + std::string(100'000, '['), 0), "unexpected an array"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(message_of(c.content), HasSubstr(c.expected)) << c.content.substr(0, 200);
  }
}

// Any outcome but a clear Error or a consistent reader is a bug: reads of all that was accepted must succeed.
bool survives(const std::string& content) {
  try {
    const SafetensorsReader reader = reader_of(content);
    for (const SafetensorsEntry& entry : reader.entries()) reader.read_all(entry);
    return true;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("f.safetensors"));
    return false;
  }
}

TEST_F(Reference, EveryTruncationIsRefused) {
  for (std::size_t size = 0; size < content_.size(); ++size) {
    EXPECT_FALSE(survives(content_.substr(0, size))) << size;
  }
}

TEST_F(Reference, DamagedFilesNeverCrash) {
  std::mt19937 random(7);
  const std::string_view spice = "{}[]\":,0123456789eE-+.\\u\0\xff\x80nft";
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = content_;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 5) {
        case 0:
          damaged[at] = static_cast<char>(damaged[at] ^ (1u << random() % 8));
          break;
        case 1:
          damaged[at] = spice[random() % spice.size()];
          break;
        case 2:
          damaged.erase(at, 1 + random() % 8);
          break;
        case 3:
          damaged.insert(at, 1 + random() % 3, spice[random() % spice.size()]);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40));
          break;
      }
      if (damaged.empty()) damaged = "x";
    }
    // Half of the rounds keep the length prefix right, so that damage reaches the parser after it.
    if (round % 2 == 0 && damaged.size() > 8) {
      const std::size_t brace = damaged.rfind('}');
      if (brace != std::string::npos && brace >= 8) {
        for (std::size_t i = 0; i < 8; ++i) damaged[i] = static_cast<char>((brace - 7) >> (8 * i));
      }
    }
    accepted += survives(damaged) ? 1 : 0;
  }
  // Bits of tensor data carry no check here, so some damaged files are still well formed.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20'000);
}

}  // namespace
}  // namespace tenon::safetensors_test
