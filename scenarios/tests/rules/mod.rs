//! Rules over their lives: loaded before they are announced, withdrawn before they go, alone or beside others on a VIP.

mod departure;
mod limits;
mod removal;
mod routes;
mod scale;
mod shared_vip;
