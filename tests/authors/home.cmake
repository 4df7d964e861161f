# A newcomer's home for the scripts of this folder: nothing of this machine's environment says where Tenon or its data is.
include(${CMAKE_CURRENT_LIST_DIR}/../consumers/steps.cmake)
set(project ${WORK}/project)   # a copy of PROJECTS, built in build/
set(tenon ${PREFIX}/bin/tenon)
set(ENV{HOME} ${WORK}/home)
set(ENV{OMP_WAIT_POLICY} passive)
foreach(name TENON_DATA_DIR TENON_PLUGIN_PATH XDG_CONFIG_HOME XDG_DATA_HOME)
  unset(ENV{${name}})
endforeach()
