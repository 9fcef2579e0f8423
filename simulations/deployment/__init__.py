"""A Flower deployment on this machine: certificates, processes, and a federation made of both."""
