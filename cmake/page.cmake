# The page for browsers and the description of the interface become part of the program.
set(page ${CMAKE_SOURCE_DIR}/src/server/page)
set(page_paths "/" "/ui/app.js" "/ui/style.css" "/ui/icon.svg")
set(page_sources ${page}/index.html ${page}/app.js ${page}/style.css ${page}/icon.svg)
if(EXISTS ${CMAKE_SOURCE_DIR}/docs/openapi.yaml)
    list(APPEND page_paths "/openapi.yaml")
    list(APPEND page_sources ${CMAKE_SOURCE_DIR}/docs/openapi.yaml)
endif()
set(page_words)
foreach(path source IN ZIP_LISTS page_paths page_sources)
    list(APPEND page_words ${path} ${source})
endforeach()
set(page_data ${CMAKE_BINARY_DIR}/page_data.c)
add_custom_command(OUTPUT ${page_data}
    COMMAND ${CMAKE_COMMAND} -DOUT=${page_data} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake --
            ${page_words}
    DEPENDS ${page_sources} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
target_sources(carat_service PRIVATE ${page_data})
