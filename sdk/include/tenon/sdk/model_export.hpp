// Names of a model's weights in other programs ("tenon.model.names/1"), obtained from a model through query.
// `tenon export` uses these names; a model without this interface is exported under its own names.
#pragma once

#include <tenon/dataset.hpp>

#include <string>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// A weight that is exported in another form than it is kept.
struct ExportedWeight {
  std::string parameter;  ///< its name here
  std::string name;       ///< its name there
  double factor = 1;      ///< multiplies every element
};

/// A text file to write beside the weights, such as config.json.
struct ExportedFile {
  std::string name;  ///< without folder
  std::string text;
};

struct ExportPlan {
  std::vector<ExportedWeight> weights;  ///< weights not listed keep name and value
  std::vector<ExportedFile> files;
};

class ModelExport {
 public:
  static constexpr const char* kId = "tenon.model.names/1";
  virtual ~ModelExport();
  /// Pure in options and data. Throws Error(kConfig) for options that the other programs cannot represent.
  virtual ExportPlan export_plan(const DataInfo& data) = 0;
};

TENON_ABI_END
