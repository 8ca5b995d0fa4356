"""What puts rooms together besides training: explaining, checking, evaluating and sampling what is at hand."""
