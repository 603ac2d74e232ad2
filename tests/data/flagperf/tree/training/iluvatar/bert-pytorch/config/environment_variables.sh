export LD_LIBRARY_PATH=/usr/local/site/lib:${LD_LIBRARY_PATH}
