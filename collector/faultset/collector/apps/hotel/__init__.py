"""HotelReservation: its spec (`app.yaml`), its steps, and the persona of the original programs."""
