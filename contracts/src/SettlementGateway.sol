// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Balances} from "./gateway/Balances.sol";
import {Batches} from "./gateway/Batches.sol";
import {Deposits} from "./gateway/Deposits.sol";
import {IUsdc} from "./gateway/IUsdc.sol";
import {InstantWithdrawals} from "./gateway/InstantWithdrawals.sol";
import {Roles} from "./gateway/Roles.sol";
import {Withdrawals} from "./gateway/Withdrawals.sol";

/// @title SettlementGateway
///
/// @notice Holds depositors' USDC and moves it between them on their signatures: many small payments for the price of
///         one transaction. A seller's revenue is a balance like any other, and leaves by the same two exits.
///
/// @dev One concern a file: `Roles`, `Balances`, `Deposits`, `Authorizations`, `Batches`, `Withdrawals`,
///      `InstantWithdrawals`. No proxy and no upgrade: what a depositor reads is what holds the money.
contract SettlementGateway is Deposits, Batches, Withdrawals, InstantWithdrawals {
    /// @param token_             USDC, the only token this gateway will ever hold
    /// @param withdrawalDelay_   In blocks; at least twice as long as a settlement may take
    constructor(IUsdc token_, uint256 withdrawalDelay_, address owner_, address pauser_, address relayer_)
        Balances(token_)
        Withdrawals(withdrawalDelay_)
        Roles(owner_, pauser_, relayer_)
    {}
}
